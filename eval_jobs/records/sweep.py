"""The position of a plan in a sweep. Frozen, like `types`, which re-exports it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """One cell of a sweep's matrix: what is evaluated, and with which settings.

    A plan with a cell is not a result of a run: it never enters a verdict, series, curve or alert of a run.
    """

    sweep: str
    """Name of the sweep."""
    target: str
    """What is evaluated: a run and step such as `tiny@600`, or the name of an endpoint."""
    variant: tuple[tuple[str, str], ...] = ()
    """Name and value of every setting that the matrix varies, in its order. Empty: the suite's own settings."""
    turn: str = ""
    """Due time (UTC, ISO 8601) of the sweep run. Empty: evaluated once, in the first sweep run."""
