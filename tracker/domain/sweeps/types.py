"""What a sweep is, and one time that it is carried out. Frozen values.

    sweep: which checkpoints and endpoints x which settings, by a timetable or on demand
    turn:  one time of a sweep: due -> running -> done; or skipped, or refused

A turn is known by its sweep and by when it was due.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from eval_jobs.types import EvalPlan, ProbeLoad, ServeSpec, Suite

Setting = float | int | str
"""A value of an axis: a number, or the name of a prompt."""


class Missed(StrEnum):
    """What becomes of times at which nobody was there to begin a sweep."""

    ONCE = "once"
    """However many they are, the sweep is carried out once."""
    SKIP = "skip"


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """When a sweep is due."""

    cron: str
    """Minute, hour, day of the month, month and day of the week, as in a crontab."""
    time_zone: str = "UTC"
    """Name in the IANA database."""
    missed: Missed = Missed.ONCE


class Pick(StrEnum):
    """How a selector names checkpoints of a run."""

    LATEST = "latest"
    FIRST = "first"
    ALL = "all"
    EVERY = "every"
    """Every so-many-th checkpoint, from the first one on: what is chosen once stays chosen as the run grows."""
    BEST = "best"
    STEP = "step"
    REGISTERED = "registered"
    """What a version in MLflow's model registry was made from."""


@dataclass(frozen=True, kw_only=True)
class Selector:
    """Which checkpoints of one run are asked."""

    text: str
    """As a person wrote it."""
    run: str = ""
    """Empty: the project's own."""
    pick: Pick
    number: int = 1
    """How many of the latest or first, every so-many-th, or which step."""
    benchmark: str = ""
    """What the best one is best at; empty: the mean over the suite."""


@dataclass(frozen=True, kw_only=True)
class OtherModel:
    """An endpoint that somebody else runs, asked beside the checkpoints."""

    name: str
    serve: ServeSpec


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What one `[[schedule]]` describes."""

    name: str
    timetable: Timetable | None = None
    """None: only on demand."""
    checkpoints: tuple[Selector, ...] = ()
    endpoints: tuple[OtherModel, ...] = ()
    suite: Suite
    """Without benchmarks, only latency is measured."""
    serve: ServeSpec
    """Of checkpoints."""
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """What the matrix varies; every combination is asked."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Texts of the prompts that the axis `prompt` names; an empty one is the benchmark's own."""
    loads: tuple[ProbeLoad, ...] = ()
    """Put on every checkpoint and endpoint once: no setting of the matrix changes them."""
    again: bool = False
    """Ask at every turn what an earlier one asked already."""
    max_evaluations: int = 200


class TurnState(StrEnum):
    """Where a turn is."""

    DUE = "due"
    """It waits until no other sweep of the run is carried out."""
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    REFUSED = "refused"
    """It cannot be carried out as it is written."""


OPEN = (TurnState.DUE, TurnState.RUNNING)
"""States that somebody still has to do something about."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One time of a sweep."""

    sweep: str
    due_at: datetime
    state: TurnState = TurnState.DUE
    by_hand: bool = False
    """A person asked for it."""
    missed: int = 0
    """Earlier times that this one stands for."""
    plans: tuple[EvalPlan, ...] = ()
    """What it asks, fixed when it began."""
    note: str = ""
    """Why it was skipped or refused, or what it could not ask; one sentence."""
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TimetablePosition:
    """Until when a sweep's timetable was followed."""

    until: datetime
    timetable: str
    """`cron time_zone` of then: another one begins anew."""
