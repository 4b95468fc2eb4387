"""A tracker over a raw training state, as a process of its own that is killed at a chosen change to its pins."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from eval_jobs.types import Checkpoint
from tests.watchers import CLOCK, WRITING_EVENTS
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.domain.checkpoints.watching import WatchOptions

STAND_IN = """#!{python}
import json, pathlib, shutil, sys
json.loads(sys.stdin.readline())
shutil.copyfile("{weights}", "model.safetensors")
print(json.dumps({{"type": "done", "files": ["model.safetensors"], "dtype": "float32", "tensors": 21,
                  "unpickled": False}}), flush=True)
sys.stdin.read()
"""
"""Answers as the real conversion does, at once: the kills are for what happens before and after it."""


def opened(root: Path, python: str = "") -> FilesystemSource:
    """Return a source over `root`/out with pins in `root`/pins; `python` converts."""
    options = WatchOptions(settle_s=0.0, rescan_s=0.01, polling=True, python=python)
    return FilesystemSource("run", root / "out", root / "pins", options, CLOCK)


def found_in_the_end(source: FilesystemSource) -> list[Checkpoint]:
    """Return what the source finds until nothing is under way."""
    found = [*source.ready(CLOCK.now()), *source.ready(CLOCK.now())]
    while source.is_behind():
        source.wait(0.2)
        found += source.ready(CLOCK.now())
    return found


def watch_until(root: Path, python: str, kill_at: int) -> None:
    """Pin what is there, in a process that is killed at its `kill_at`-th change to the folder of pins."""
    pins, count = str(root / "pins"), 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in WRITING_EVENTS and any(str(argument).startswith(pins) for argument in arguments):
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    found_in_the_end(opened(root, python))
    os._exit(0)


def stand_in(folder: Path, script: str) -> str:
    """Write an interpreter that runs `script` whatever it is told to run, and return its path."""
    path = folder / "python"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return str(path)
