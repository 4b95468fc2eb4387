"""The client process (client/main.py), kept between measurements: starting one can take longer than a load.

It ends with its owner: when the owner is garbage-collected, closes it, or is killed.
"""

import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from typing import IO

from eval_jobs.host.secrets import passed_on

READ_BYTES = 1 << 16


class ClientEnded(Exception):
    """The client exited without a reply; `is_killed`: by a signal, which is not the fault of the measured server."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(f"the probe client exited with code {code}: {words}")
        self.is_killed = code < 0


class ClientProcess:
    """One client process; its environment contains none of our secrets except the named one."""

    def __init__(self, *, keep_secret: str) -> None:
        self.keep_secret = keep_secret
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_end`
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "eval_jobs.probe.client.main"],  # -P: no imports from the current folder
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            env=passed_on(os.environ, keep=(keep_secret,)),
        )
        self._end = weakref.finalize(self, _end, self._process, self._words)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, request: bytes, *, timeout_s: float) -> bytes:
        """Send one line and return the reply, one line.

        Raises:
            TimeoutError: no reply within `timeout_s`.
            ClientEnded: the client exited.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError("the probe client needs pipes for stdin and stdout")
        deadline_s = time.monotonic() + timeout_s
        try:
            self._process.stdin.write(request + b"\n")
        except BrokenPipeError:
            raise self._ended() from None
        reply, source = bytearray(), self._process.stdout.fileno()
        while not reply.endswith(b"\n"):
            if not select.select([source], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(source, READ_BYTES)
            if not part:
                raise self._ended()
            reply += part
        return bytes(reply)

    def close(self) -> None:
        """End the process. Calling it twice is harmless."""
        self._end()

    def _ended(self) -> ClientEnded:
        code = self._process.wait()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip().splitlines() or ["no output"]
        return ClientEnded(code, words[-1])


def _end(process: subprocess.Popen[bytes], words: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for file in (process.stdin, process.stdout, words):
        if file is not None:
            file.close()
