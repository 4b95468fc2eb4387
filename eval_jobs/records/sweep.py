"""Where a plan belongs in a sweep. Frozen, like `types`, which names it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """One field of a sweep's matrix: what is asked, and how.

    A plan that has one is nobody's checkpoint result: no verdict, series, curve or alert of a run ever holds it.
    """

    sweep: str
    """Name of the sweep."""
    target: str
    """What is asked, in words: `tiny@600`, or the name of an endpoint."""
    variant: tuple[tuple[str, str], ...] = ()
    """Name and value of every setting that the matrix varies, in its order; empty: the suite's own settings."""
    turn: str = ""
    """Which time of the sweep asks it; empty: asked once, whichever time comes first."""
