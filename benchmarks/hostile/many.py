"""Many tiny checkpoints that appear at once: when the first is planned and judged, and when all are held.

python -m benchmarks.hostile.many [COUNT]

The watcher, its worker and the database are real; the engine is the stand-in of the chaos benchmark.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.killing.engine import write_interpreter
from benchmarks.killing.place import TRACKER

REPOSITORY = Path(__file__).parent.parent.parent
ENDS_S = 120.0
CONFIG = """
[run]
name = "many"
output_dir = "out"
state_dir = "state"
[serve]
python = "{python}"
args = ["--chat-template", "none"]
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[probe]
enabled = false
[tracking]
enabled = false
"""


@dataclass(frozen=True, kw_only=True)
class Many:
    """Seconds from the moment at which all checkpoints are there; None: not within `ENDS_S`."""

    count: int
    first_plan_s: float | None
    first_verdict_s: float | None
    all_held_s: float | None
    stop_s: float | None
    """From SIGTERM to the end of the watcher."""
    peak_mb: float
    """Of the watcher's memory."""


def measure_many(count: int) -> Many:
    """Let `count` checkpoints appear under a running watcher, and stop it with SIGTERM when all are held."""
    with tempfile.TemporaryDirectory(prefix="many-") as name:
        home = Path(name)
        rows = [{"question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(8)]
        (home / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (home / "tracker.toml").write_text(CONFIG.format(python=write_interpreter(home)))
        for number in range(1, count + 1):
            _write(home / "made" / f"checkpoint-{number * 10}", number)
        command = [str(TRACKER), "watch", "--workers", "1", "--config", str(home / "tracker.toml")]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        with (
            (home / "log").open("wb") as log,
            subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log) as watcher,
        ):
            try:
                return _watched(home, count, watcher)
            finally:
                watcher.kill()
                sys.stdout.write(
                    (home / "log").read_text(errors="replace")[-3000:] if os.environ.get("SHOW_LOG") else ""
                )


def _watched(home: Path, count: int, watcher: subprocess.Popen[bytes]) -> Many:
    _until(lambda: _has_rows(home, "watch_leaders"), ENDS_S)
    (home / "made").rename(home / "out")
    began_s = time.monotonic()
    left: dict[str, Callable[[], bool]] = {
        "plan": lambda: _has_rows(home, "eval_plans"),
        "verdict": lambda: _has_rows(home, "history_reports"),
        "held": lambda: _pins(home) >= count,
    }
    seen: dict[str, float] = {}
    while left and time.monotonic() - began_s < ENDS_S and watcher.poll() is None:
        for name in [name for name, has_come in left.items() if has_come()]:
            seen[name] = time.monotonic() - began_s
            del left[name]
        time.sleep(0.5)
    print(f"held at the end: {_pins(home)}")
    peak_mb = _peak_mb(watcher.pid)
    stopped_s = time.monotonic()
    watcher.send_signal(signal.SIGTERM)
    has_ended = _until(lambda: watcher.poll() is not None, 60.0)
    return Many(
        count=count,
        first_plan_s=seen.get("plan"),
        first_verdict_s=seen.get("verdict"),
        all_held_s=seen.get("held"),
        stop_s=time.monotonic() - stopped_s if has_ended else None,
        peak_mb=peak_mb,
    )


def _write(folder: Path, seed: int) -> None:
    """Write a checkpoint of one small tensor."""
    folder.mkdir(parents=True)
    header = json.dumps({"lm_head.weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    header += b" " * (-len(header) % 8)
    data = struct.pack("<4f", seed, 1.0, 2.0, 3.0)
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)
    (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    step = int(folder.name.rpartition("-")[2])
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "save_steps": 10}))
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')


def _has_rows(home: Path, table: str) -> bool:
    database = home / "state" / "tracker.db"
    if not database.exists():
        return False
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=1.0)) as connection:
            return connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None  # noqa: S608 - our own name
    except sqlite3.Error:
        return False


def _pins(home: Path) -> int:
    pins = home / "state" / "pins" / "many"
    return len(os.listdir(pins)) if pins.exists() else 0  # noqa: PTH208 - fast


def _peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines() if Path(f"/proc/{pid}").exists() else []
    return max((float(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM")), default=0.0)


def _until(has_come: Callable[[], bool], ends_s: float) -> bool:
    end_s = time.monotonic() + ends_s
    while time.monotonic() < end_s:
        if has_come():
            return True
        time.sleep(0.1)
    return False


def main() -> None:
    """Print the numbers."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    found = measure_many(count)
    for name, value in vars(found).items():
        print(f"{name:>16} {value if value is None or isinstance(value, int) else round(value, 1)}", flush=True)


if __name__ == "__main__":
    main()
