"""Stacks of Python processes, read with py-spy from outside: it stops none of them."""

import json
import logging
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tracker.adapters.host.machine import py_spy
from tracker.domain.health.processes.seen import Frame

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
AT_ONCE = 8
MAX_BYTES = 4 << 20
MAX_FRAMES = 200
MAX_CHARS = 300
_MAIN = "MainThread"


@dataclass(kw_only=True)
class Stacks:
    """Runs py-spy; where it is missing or may not trace, there are no stacks, which is logged once."""

    program: str | None = None
    """None: beside this Python, else in PATH."""
    timeout_s: float = TIMEOUT_S
    _reported: set[str] = field(default_factory=set)
    _stuck: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """That cannot be ended, as they read from a file server that hangs. Nobody waits for them."""

    def of(self, pids: Sequence[int]) -> dict[int, tuple[Frame, ...]]:
        """Return the stack of the main thread of each process that has one that can be read."""
        program = self.program or py_spy()
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if len(self._stuck) >= AT_ONCE:
            return {}
        if program is None:
            self._report("py-spy is not installed; hint: pip install 'checkpoint-tracker[stacks]'")
            return {}
        with ThreadPoolExecutor(min(AT_ONCE, len(pids) or 1)) as pool:
            stacks = pool.map(lambda pid: self._of_one(program, pid), pids)
            return {pid: stack for pid, stack in zip(pids, stacks, strict=True) if stack is not None}

    def _of_one(self, program: str, pid: int) -> tuple[Frame, ...] | None:
        command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            self._report(f"py-spy cannot be started: {error.strerror or error}")
            return None
        try:
            output, errors = process.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            self._report(f"py-spy took longer than {self.timeout_s:.0f} s, and was ended")
            self._end(process)
            return None
        if process.returncode:
            said = errors.decode(errors="replace").strip().splitlines() or ["no output"]
            if "denied" in said[0].lower() or "permitted" in said[0].lower():
                self._report(f"py-spy may not trace processes: {said[0]}; hint: see `tracker doctor`")
            return None
        return parsed_stack(output[:MAX_BYTES], pid)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            self._stuck.append(process)

    def _report(self, said: str) -> None:
        if said not in self._reported:
            self._reported.add(said)
            log.warning("no stacks: %s", said)


def parsed_stack(output: bytes, pid: int) -> tuple[Frame, ...] | None:
    """Return the stack of the main thread in the output of `py-spy dump --json`; None: it has none."""
    try:
        threads = json.loads(output)
        for thread in threads:
            if thread["thread_name"] == _MAIN or thread.get("os_thread_id") == pid:
                return tuple(_frame(one) for one in thread["frames"][:MAX_FRAMES])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


def _frame(one: dict[str, object]) -> Frame:
    line = one.get("line")
    return Frame(
        function=str(one["name"])[:MAX_CHARS],
        file=str(one["filename"])[-MAX_CHARS:],
        line=line if isinstance(line, int) else 0,
    )
