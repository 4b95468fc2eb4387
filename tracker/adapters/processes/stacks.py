"""Stacks of Python processes, read with py-spy from outside: it stops none of them."""

import json
import logging
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field

from eval_jobs.host import proc
from eval_jobs.host.bounded.answers import in_thread
from tracker.adapters.host.machine import py_spy
from tracker.domain.health.processes.seen import StackFrame

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""Of one stack."""
ALL_S = 10.0
"""Of all stacks of a sample: what is not there by then is missing."""
KILL_S = 0.5
AT_ONCE = 8
MAX_BYTES = 4 << 20
MAX_FRAMES = 200
MAX_CHARS = 300
MAX_REPORTED = 10
_MAIN = "MainThread"


@dataclass(kw_only=True)
class Stacks:
    """Runs py-spy; where it is missing or may not trace, there are no stacks, which is logged once."""

    program: str | None = None
    """None: beside this Python, else in PATH."""
    timeout_s: float = TIMEOUT_S
    all_s: float = ALL_S
    _reported: set[str] = field(default_factory=set)
    _stuck: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Those that no signal ends, as while they read from a file server that hangs."""

    def of(self, pids: Sequence[int]) -> dict[int, tuple[StackFrame, ...] | str]:
        """Return the stack of the main thread of each process, or why it cannot be read; in time, or not at all."""
        program = self.program or py_spy()
        if program is None:
            why = self._report("py-spy is not installed", "pip install checkpoint-tracker[stacks]")
            return dict.fromkeys(pids, why)
        self._stuck = [one for one in self._stuck if one.poll() is None]
        left, until_s = deque(pids), time.monotonic() + self.all_s
        found: dict[int, tuple[StackFrame, ...] | str] = {}
        readers: list[Future[None]] = []
        with suppress(RuntimeError):  # no more threads
            while len(readers) < min(AT_ONCE - len(self._stuck), len(pids)):
                readers.append(in_thread("py-spy", lambda: self._read(program, left, until_s, found)))
        wait(readers, self.all_s + 2 * KILL_S)
        return dict(found)

    def _read(
        self, program: str, left: deque[int], until_s: float, found: dict[int, tuple[StackFrame, ...] | str]
    ) -> None:
        """Read one stack after the other until there is none left, or no time."""
        with suppress(IndexError):
            while (left_s := until_s - time.monotonic()) > 0:
                pid = left.popleft()
                found[pid] = self._of_one(program, pid, min(self.timeout_s, left_s))

    def _of_one(self, program: str, pid: int, timeout_s: float) -> tuple[StackFrame, ...] | str:
        command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            return self._report(f"py-spy cannot be started: {error.strerror or error}")
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._end(process)
            return self._report(f"py-spy took longer than {self.timeout_s:.0f} s, and was ended")
        if process.returncode:
            return self._failed(errors.decode(errors="replace"), pid)
        stack = parsed_stack(output[:MAX_BYTES], pid)
        return self._report("the output of py-spy cannot be read") if stack is None else stack

    def _failed(self, errors: str, pid: int) -> str:
        error = (errors.strip().splitlines() or ["no output"])[0][:MAX_CHARS]
        if "denied" in error.lower() or "permitted" in error.lower():
            return self._report(f"py-spy may not trace processes: {error}", "see `tracker doctor`")
        found = proc.stat(pid)
        if found is None or not found.alive:
            return "the process has ended"
        return self._report(f"py-spy cannot read the process: {error}", "update py-spy if it is older than its Python")

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            self._stuck.append(process)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def _report(self, why: str, hint: str = "") -> str:
        """Log once why there is no stack, and return it."""
        if why not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(why)
            log.warning("no stacks: %s%s", why, f"; hint: {hint}" if hint else "")
        return why


def parsed_stack(output: bytes, pid: int) -> tuple[StackFrame, ...] | None:
    """Return the stack of the main thread in the output of `py-spy dump --json`; None: it has none."""
    try:
        threads = json.loads(output)
        for thread in threads:
            if thread["thread_name"] == _MAIN or thread.get("os_thread_id") == pid:
                return tuple(_frame(one) for one in thread["frames"][:MAX_FRAMES])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


def _frame(one: dict[str, object]) -> StackFrame:
    line = one.get("line")
    return StackFrame(
        function=str(one["name"])[:MAX_CHARS],
        file=str(one["filename"])[-MAX_CHARS:],
        line=line if isinstance(line, int) else 0,
    )
