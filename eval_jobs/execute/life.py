"""Heartbeats of processes with a main loop: each renews a small file in its work folder in every iteration.

    with SignOfLife(work_dir, "watch", clock, run="qwen") as sign:
        sign.give("watching")
    lives(work_dir, "watch", clock)     # of the running processes of this machine, or container

A stopped, frozen or stuck process does not renew it. One that waits for an unreachable database does, and reports it.
"""

import json
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from eval_jobs.host import proc
from eval_jobs.ports import Clock

FOLDER = "alive"
EVERY_S = 5.0
"""Minimum time between two writes of the file; loops iterate more often."""
LEFT_S = 3600.0
"""Files of this age are deleted as leftovers of dead processes; a process that only sleeps writes its file again."""
_NAME = re.compile(r"[a-z]+-(?P<pid>[0-9]+)-(?P<started>[0-9]+)-(?P<machine>[0-9a-f]+)\.json")


@dataclass(frozen=True, kw_only=True)
class Life:
    """One running process and its last heartbeat."""

    pid: int
    run: str = ""
    """Run that a watcher or an agent follows; empty for a worker, which evaluates for every run."""
    activity: str
    age_s: float
    """Age of the heartbeat. Time in which the machine was suspended does not count."""


class SignOfLife:
    """The heartbeat of this process while its context is open; `give` may be called from any thread."""

    def __init__(self, work_dir: Path, kind: str, clock: Clock, *, run: str = "") -> None:
        name = f"{kind}-{os.getpid()}-{proc.own_start_time()}-{proc.machine_hash()}.json"
        self._path = work_dir / FOLDER / name
        self._clock = clock
        self._run = run
        self._lock = threading.Lock()
        self._given_s: float | None = None

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for path in self._path.parent.iterdir():
                if time.time() - path.stat().st_mtime > LEFT_S:
                    path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def give(self, activity: str) -> None:
        """Renew the heartbeat, with the current activity."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            if self._given_s is not None and now_s - self._given_s < EVERY_S:
                return
            self._given_s = now_s
            with suppress(OSError):  # a full disk must not end an evaluation
                new = self._path.with_suffix(".new")
                new.write_text(json.dumps({"at_s": now_s, "run": self._run, "activity": activity}), encoding="utf-8")
                new.replace(self._path)


def lives(work_dir: Path, kind: str, clock: Clock) -> tuple[Life, ...]:
    """Return the running processes of this kind that have a heartbeat, lowest process ID first."""
    found = []
    for path in (work_dir / FOLDER).glob(f"{kind}-*.json"):
        name = _NAME.fullmatch(path.name)
        if name is None or name["machine"] != proc.machine_hash():
            continue  # processes of another machine cannot be checked
        if not proc.is_running(int(name["pid"]), int(name["started"])):
            continue
        with suppress(FileNotFoundError):  # it has just ended
            said = json.loads(path.read_text(encoding="utf-8"))
            age_s = clock.monotonic_s() - said["at_s"]
            life = Life(pid=int(name["pid"]), run=said.get("run", ""), activity=said["activity"], age_s=age_s)
            found.append(life)
    return tuple(sorted(found, key=lambda life: life.pid))
