"""The parent of a job's ranks, in a session of its own, which ends the job when the starter is gone.

    python parent.py reap|leave RANK0_LOG COMMAND...

It runs COMMAND once for each rank. `leave`: it never reaps a rank that ended, which remains as a zombie.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path


def start(rank: int, log: Path, command: list[str]) -> subprocess.Popen[bytes]:
    """Start one rank: only the first writes to the log of the training."""
    output = log if rank == 0 else log.with_name("rank1.txt")
    with output.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"},
        )


if __name__ == "__main__":
    reaping, log_path, *rank_command = sys.argv[1:]
    if reaping == "reap":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ranks = [start(rank, Path(log_path), rank_command) for rank in (0, 1)]
    sys.stdin.read()  # it ends when the starter closes it or is gone
    os.killpg(0, signal.SIGKILL)
