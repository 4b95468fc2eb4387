"""What runs inside the tracker's own processes in a round: time is faster there, and one line may be deadly.

    CHAOS_DIR/constants.json     module -> {constant: value}: waits of minutes become seconds
    CHAOS_DIR/bombs/ROLE-*.json  {"file", "line", "nth"}: taken by the next process of that role, once
    CHAOS_DIR/lines/             where it exists, every process notes there which lines of ours it runs

The program itself knows nothing of this: no hook in it is used. Only the standard library is imported here.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

HOME = "CHAOS_DIR"
"""Environment variable that names the round's folder."""
OURS = re.compile(r"/((?:eval_jobs|tracker)/[a-z0-9_/]+\.py)$")
ROLES = {
    "eval_jobs.execute.worker.main": "worker",
    "tracker.wiring.agent": "agent",
    "eval_jobs.evaluate.evalscope.child.main": "evaluator",
    "eval_jobs.probe.client.main": "prober",
}
COMMANDS = {"watch": "watcher", "worker": "worker"}
Tracer = Callable[[FrameType, str, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Bomb:
    """Where a process is to die: when it is about to run `line` of `file` for the `nth` time."""

    file: str
    line: int
    nth: int = 1


def begin() -> None:
    """Do what the round's folder says; outside a round nothing."""
    if HOME not in os.environ:
        return
    home = Path(os.environ[HOME])
    sys.meta_path.insert(0, _Faster(json.loads((home / "constants.json").read_text())))
    role = _role(sys.orig_argv)
    if not role:
        return
    if (home / "lines").is_dir():
        watch_lines(_once_each(lambda place: _append(home / "lines" / f"{role}-{os.getpid()}", place)))
    elif (bomb := _take_bomb(home / "bombs", role)) is not None:
        fired = f"{role} {os.getpid()} {bomb.file}:{bomb.line} #{bomb.nth}"
        arm(bomb, lambda: _append(home / "fired.log", fired))


def arm(bomb: Bomb, last_words: Callable[[], None]) -> None:
    """Kill this process with SIGKILL at the bomb's line, in whichever thread comes there."""
    left = [bomb.nth]

    def in_function(frame: FrameType, event: str, _: object) -> Tracer:
        if event == "line" and frame.f_lineno == bomb.line:
            left[0] -= 1
            if left[0] == 0:
                last_words()
                os.kill(os.getpid(), signal.SIGKILL)
        return in_function

    _trace(lambda frame, *_: in_function if frame.f_code.co_filename.endswith(f"/{bomb.file}") else None)


def watch_lines(note: Callable[[str], None]) -> None:
    """Call `note` with `file:line` whenever this process runs a line of ours, in any thread."""
    files: dict[str, str] = {}

    def in_function(frame: FrameType, event: str, _: object) -> Tracer:
        if event == "line":
            note(f"{files[frame.f_code.co_filename]}:{frame.f_lineno}")
        return in_function

    def in_module(frame: FrameType, *_: object) -> Tracer | None:
        path = frame.f_code.co_filename
        if path not in files:
            found = OURS.search(path)
            files[path] = found.group(1) if found else ""
        return in_function if files[path] else None

    _trace(in_module)


# --- private


class _Faster(importlib.abc.MetaPathFinder):
    """Imports modules of ours with other numbers in their constants."""

    def __init__(self, constants: Mapping[str, Mapping[str, float]]) -> None:
        self._constants = constants

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find the module as usual and load it in another way."""
        if fullname not in self._constants:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Changed(fullname, spec.origin, self._constants[fullname])
        return spec


class _Changed(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, values: Mapping[str, float]) -> None:
        super().__init__(fullname, path)
        self._values = values

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed text; compiled files that lie about are not used."""
        text = self.get_data(self.path).decode()
        for name, value in self._values.items():
            text, count = re.subn(rf"(?m)^{name} = [0-9._]+$", f"{name} = {value}", text)
            if count != 1:
                raise ImportError(f"{fullname} has no constant {name}")
        code: CodeType = compile(text, self.path, "exec", dont_inherit=True)
        return code


def _once_each(note: Callable[[str], None]) -> Callable[[str], None]:
    seen: set[str] = set()

    def note_if_new(place: str) -> None:
        if place not in seen:
            seen.add(place)
            note(place)

    return note_if_new


def _role(words: Sequence[str]) -> str:
    if any(word.endswith("/tracker") for word in words):
        return next((role for word, role in COMMANDS.items() if word in words), "")
    return next((role for module, role in ROLES.items() if module in words), "")


def _take_bomb(folder: Path, role: str) -> Bomb | None:
    for path in sorted(folder.glob(f"{role}-*.json")):
        taken = path.with_suffix(".taken")
        try:
            path.rename(taken)
        except OSError:
            continue  # another process was faster
        return Bomb(**json.loads(taken.read_text()))
    return None


def _append(path: Path, line: str) -> None:
    """Write at once: after a kill nobody will."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def _trace(tracer: Tracer) -> None:
    threading.settrace(tracer)
    sys.settrace(tracer)
