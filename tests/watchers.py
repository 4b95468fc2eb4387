"""Watchers as processes of their own, which a test may kill or put under limits."""

import os
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from eval_jobs.errors import TrackerError
from eval_jobs.host.clock import SystemClock
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.domain.checkpoints.watching import WatchOptions

CLOCK = SystemClock()
OPTIONS = WatchOptions(settle_s=1.0, rescan_s=2.0)
AT_ONCE = WatchOptions(settle_s=0.0, rescan_s=0.01, polling=True)

WRITING_EVENTS = {
    "open",
    "os.mkdir",
    "os.link",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "shutil.copyfile",
    "shutil.rmtree",
}
NOBODY = 65534


def opened(root: Path, options: WatchOptions = OPTIONS) -> FilesystemSource:
    """Return a source over `root`/out with pins in `root`/pins."""
    return FilesystemSource("run", root / "out", root / "pins", options, CLOCK)


def look_and_leave(root: Path, kill_at: int) -> None:
    """Pin what is there in a process that is killed at its `kill_at`-th change to the folder of pins."""
    pins, count = str(root / "pins"), 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event in WRITING_EVENTS and any(str(argument).startswith(pins) for argument in arguments):
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    source = opened(root, AT_ONCE)
    source.ready(CLOCK.now())
    source.ready(CLOCK.now())
    os._exit(0)


def watch_for_ever(root: Path) -> None:
    """Watch until killed."""
    source = opened(root)
    while True:
        source.ready(CLOCK.now())
        source.wait(1.0)


def pin_with_small_files_only(path: Path, pins: Path, max_file_bytes: int, result: Connection) -> None:
    """Pin where no file may become larger than `max_file_bytes`; send the error, or None."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    result.send(_error_of_pinning(path, pins))


def pin_as_nobody(path: Path, pins: Path, result: Connection) -> None:
    """Pin as a user to whom file modes apply; send the error, or None."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    result.send(_error_of_pinning(path, pins))


# --- private


def _error_of_pinning(path: Path, pins: Path) -> tuple[str, str] | None:
    try:
        pin_folder(path, run_id="run", pins_dir=pins)
    except TrackerError as error:
        return (error.code, error.message)
    return None
