"""Signs of life of processes that go round a loop: a small file of each in its work folder, renewed at every round.

    with SignOfLife(work_dir, "worker", clock) as sign:
        sign.give("waiting for plans")
    lives(work_dir, "worker", clock)     # of the processes of this machine, or container, that are there

One that is stopped, frozen or stuck renews nothing. One that waits for a database that is away does, and says so.
"""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from eval_jobs.host import proc
from eval_jobs.ports import Clock

EVERY_S = 5.0
"""Between two signs in the file; a loop goes round more often."""
LEFT_S = 3600.0
"""A file that old was left by a process that is gone: of one that only sleeps it is written again."""
_NAME = re.compile(r"[a-z]+-(?P<pid>[0-9]+)-(?P<started>[0-9]+)-(?P<machine>[0-9a-f]+)\.json")


@dataclass(frozen=True, kw_only=True)
class Life:
    """One process that is there, and the last sign that it gave."""

    pid: int
    activity: str
    age_s: float
    """Of the sign. Time in which the machine itself slept does not count."""


class SignOfLife:
    """What this process says while its context is open; `give` may be called from any thread."""

    def __init__(self, work_dir: Path, kind: str, clock: Clock) -> None:
        name = f"{kind}-{os.getpid()}-{proc.own_start_time()}-{proc.machine_hash()}.json"
        self._path = _folder(work_dir) / name
        self._clock = clock
        self._lock = threading.Lock()
        self._given_s: float | None = None

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for path in self._path.parent.iterdir():
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink(missing_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def give(self, activity: str) -> None:
        """Say that this process goes round, and what it does."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._given_s is not None and now_s - self._given_s < EVERY_S:
                return
            self._given_s = now_s
            with suppress(OSError):  # a disk that is full ends no evaluation
                new = self._path.with_suffix(".new")
                new.write_text(json.dumps({"at_s": now_s, "activity": activity}), encoding="utf-8")
                new.replace(self._path)


def lives(work_dir: Path, kind: str, clock: Clock) -> tuple[Life, ...]:
    """Return the processes of that kind which are there and have given a sign, lowest process id first."""
    return tuple(sorted(_lives(work_dir, kind, clock), key=lambda life: life.pid))


# --- private


def _folder(work_dir: Path) -> Path:
    return work_dir / "alive"


def _lives(work_dir: Path, kind: str, clock: Clock) -> Iterator[Life]:
    for path in _folder(work_dir).glob(f"{kind}-*.json"):
        name = _NAME.fullmatch(path.name)
        if name is None or name["machine"] != proc.machine_hash():
            continue  # nothing is known of processes of another machine
        if not proc.is_running(int(name["pid"]), int(name["started"])):
            continue
        with suppress(FileNotFoundError):  # it ends at this moment
            said = json.loads(path.read_text(encoding="utf-8"))
            yield Life(pid=int(name["pid"]), activity=said["activity"], age_s=clock.monotonic_s() - said["at_s"])
