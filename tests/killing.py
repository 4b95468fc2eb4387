"""Kills a piece of code at its n-th line, in this process: for what must survive a kill at every statement.

    for number in count(1):
        with killed_at(number, filesystem_pins, filesystem_manifest) as kill:
            do_it()
        if not kill.happened:
            break           # it has fewer lines than that
        ...                 # start anew over what is left, and compare with an undisturbed run

A killed process runs no `finally`: once killed, every further line of these modules is killed too, until the exception
has left all of them.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any


class Killed(BaseException):
    """The process is dead; no code of ours may catch this."""


@dataclass
class Kill:
    """Whether and where the code was killed."""

    lines: int = 0
    """Lines that were begun."""
    where: str = ""
    """`module.py:17`; empty: it ended before."""

    @property
    def happened(self) -> bool:
        return bool(self.where)


@contextmanager
def killed_at(number: int, *modules: ModuleType) -> Iterator[Kill]:
    """Raise `Killed` in this thread before the `number`-th line of `modules` that is run, and swallow it here.

    Generators that are left half-way are closed by the kill as well; a file that is open is flushed, as if the kill had
    come a moment later.
    """
    kill = Kill()
    files = {module.__file__ for module in modules}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            kill.lines += 1
            if kill.lines >= number:
                kill.where = kill.where or f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno}"
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield kill
    except Killed:
        pass
    finally:
        sys.settrace(before)
