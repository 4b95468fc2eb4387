"""Ctrl-C, a closed terminal and `kill` end a command the same way, so that servers and workers are stopped."""

import signal
import threading
from types import FrameType

_asked = threading.Event()


def install() -> None:
    """Turn SIGINT, SIGTERM and SIGHUP into KeyboardInterrupt; one that `nohup` or `&` ignores stays ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def check() -> None:
    """Raise KeyboardInterrupt if a signal was received: a library may have swallowed the first KeyboardInterrupt."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _interrupt(signum: int, frame: FrameType | None) -> None:
    del signum, frame
    _asked.set()
    raise KeyboardInterrupt
