"""Sweeps and sweep runs. Frozen values.

    sweep: which checkpoints and endpoints x which settings, by a timetable or on demand
    turn:  one sweep run: due -> running -> done; or skipped, or refused

A sweep run is identified by its sweep and due time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from eval_jobs.types import EvalPlan, ProbeLoad, ServeSpec, Suite

Setting = float | int | str
"""A value of an axis: a number, or the name of a prompt."""


class Missed(StrEnum):
    """What to do about times at which no watcher was running to start a sweep."""

    ONCE = "once"
    """Execute the sweep once, however many times were missed."""
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
    """Every Nth checkpoint, from the first one: what is selected stays selected as the run grows."""
    BEST = "best"
    STEP = "step"
    REGISTERED = "registered"
    """The checkpoint that a version in MLflow's model registry was created from."""


@dataclass(frozen=True, kw_only=True)
class Selector:
    """The checkpoints of one run to evaluate."""

    text: str
    """As the user wrote it."""
    run: str = ""
    """Name of the run; empty: the project's own."""
    pick: Pick
    number: int = 1
    """How many of the latest or first, N of every Nth, or the step."""
    benchmark: str = ""
    """Benchmark that `best` refers to; empty: the mean over the suite."""


@dataclass(frozen=True, kw_only=True)
class OtherModel:
    """An external endpoint, evaluated alongside the checkpoints."""

    name: str
    serve: ServeSpec


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The sweep that one `[[schedule]]` describes."""

    name: str
    timetable: Timetable | None = None
    """None: only on demand."""
    checkpoints: tuple[Selector, ...] = ()
    endpoints: tuple[OtherModel, ...] = ()
    suite: Suite
    """Without benchmarks, only latency is measured."""
    serve: ServeSpec
    """Serving settings of checkpoints."""
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """Values of each setting that the matrix varies; every combination is evaluated."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Prompt templates by name, for the axis `prompt`; an empty one is the benchmark's own."""
    loads: tuple[ProbeLoad, ...] = ()
    """Applied once to every checkpoint and endpoint: no setting of the matrix changes them."""
    again: bool = False
    """Whether to evaluate again what an earlier sweep run has already evaluated."""
    max_evaluations: int = 200


class TurnState(StrEnum):
    """State of a sweep run."""

    DUE = "due"
    """Waits until no other sweep run of the training run is active."""
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    REFUSED = "refused"
    """Cannot be executed as configured."""


OPEN = (TurnState.DUE, TurnState.RUNNING)
"""States of unfinished sweep runs."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One sweep run: one execution of a sweep."""

    sweep: str
    due_at: datetime
    state: TurnState = TurnState.DUE
    by_hand: bool = False
    """Whether it was started on demand."""
    missed: int = 0
    """Number of earlier missed times that it stands for."""
    plans: tuple[EvalPlan, ...] = ()
    """Its plans, fixed at its start."""
    note: str = ""
    """Why it was skipped or refused, or what it could not evaluate; one sentence."""
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class TimetablePosition:
    """The time until which a sweep's timetable was followed."""

    until: datetime
    timetable: str
    """`cron time_zone` at that time: a change starts a new position."""
