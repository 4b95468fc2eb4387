"""A training that `tracker guard` started, and how it ended. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from signal import Signals

SIGNAL_BASE = 128
"""A shell reports death by signal N as exit code 128 + N."""

ROUNDED_TICKS = 1
"""Largest rounding error when seconds are converted to ticks."""


@dataclass(frozen=True, kw_only=True)
class GuardedRun:
    """One start of a command."""

    run: str
    """Name of the run."""
    command: tuple[str, ...]
    """The program and its arguments, without keys."""
    log: str
    """Path of the file with its output."""
    machine: str
    """Boot and container within which the process ID is valid."""
    pid: int
    start_time: int
    """Clock ticks since boot, which with `pid` identify the process; 0: unknown on this system."""
    started_at: datetime
    ended_at: datetime | None = None
    """None: it still runs, or the guard was killed before it ended."""
    exit_code: int | None = None
    """None: it has not ended, or a signal ended it."""
    signal: int | None = None
    """Number of the signal that ended it."""

    @property
    def is_finished(self) -> bool:
        """Return whether it exited by itself with code 0."""
        return self.exit_code == 0

    @property
    def shell_code(self) -> int:
        """Return the exit code that a shell would report; 0 if it has not ended."""
        if self.signal is not None:
            return SIGNAL_BASE + self.signal
        return self.exit_code or 0


def exit_of(runs: Iterable[GuardedRun], machine: str, began_ticks: float, seen_s: float) -> int | None:
    """Return how the command ended whose processes began at that time; None: it is not known.

    Args:
        runs: starts of commands.
        machine: as in `GuardedRun`.
        began_ticks: when the first process began, in clock ticks since boot.
        seen_s: when it was seen first, in Unix seconds: a command that had ended before is another one.

    Returns:
        An exit code; negative: the signal that ended it.
    """
    latest = round(began_ticks) + ROUNDED_TICKS
    before = [one for one in runs if one.machine == machine and one.start_time <= latest]
    newest = max(before, key=lambda one: one.start_time, default=None)
    if newest is None or newest.ended_at is None or newest.ended_at.timestamp() < seen_s:
        return None
    return newest.exit_code if newest.signal is None else -newest.signal


def ending_text(found: GuardedRun) -> str:
    """Return how the command ended, as the rest of a sentence about it."""
    if found.signal is not None:
        return f"was ended by {_name(found.signal)}"
    if found.exit_code is None:
        return "has not ended"
    if found.is_finished:
        return "finished"
    by_shell = found.exit_code - SIGNAL_BASE
    cause = f", as a shell reports {_name(by_shell)}" if by_shell in set(Signals) else ""
    return f"failed with exit code {found.exit_code}{cause}"


def _name(number: int) -> str:
    if number in set(Signals):
        return Signals(number).name
    return f"signal {number}"
