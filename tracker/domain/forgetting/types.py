"""What the forgetting ledger says: records for people and for JSON. Pure.

RunLedger > BenchmarkLedger > LedgerRow (the benchmark, then its subsets), with phases and lost samples beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracker.domain.forgetting.levels import CheckpointBlock, Forgetting
from tracker.domain.forgetting.sample_lives import Event, Flow, StepEvents
from tracker.domain.forgetting.transfer import BackwardTransfer
from tracker.domain.records.types import Phase


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """A benchmark, or one of its subsets."""

    subset: str
    """Empty: the whole benchmark."""
    samples: int
    means: tuple[float | None, ...]
    """Score at every step of the benchmark, as it is reported; None where no sample has one."""
    forgetting: Forgetting | None
    """None: too few checkpoints or samples."""
    flow: Flow | None
    """None: too few checkpoints, or scores that are not between 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Since:
    """What became of a benchmark since it was taught."""

    taught_by: str | None
    """The phase in which it rose most; None: none taught it, and it is followed from the start of the run."""
    reference: CheckpointBlock
    """The end of that phase."""
    last: CheckpointBlock
    change: float
    """last - reference, up is better, on their common samples."""
    ci_low: float
    """95 % interval of the change."""
    ci_high: float


@dataclass(frozen=True, kw_only=True)
class LostSample:
    """One lost sample, without its texts."""

    sample_id: str
    subset: str
    known_before: float
    """Share of right answers in the window before."""
    known_after: float
    right: tuple[bool | None, ...]
    """At every step of the benchmark; None: no score."""
    events: tuple[Event, ...]
    texts: LostTexts | None = None
    """None: not read, or not kept."""


@dataclass(frozen=True, kw_only=True)
class LostTexts:
    """What was asked, and what two checkpoints said."""

    prompt: str
    target: str
    answer_before: str | None
    """None: deleted to save space."""
    right_before: bool
    answer_after: str | None
    right_after: bool


@dataclass(frozen=True, kw_only=True)
class Window:
    """Checkpoints between which samples count as lost."""

    before_steps: tuple[int, ...]
    after_steps: tuple[int, ...]
    before_plan_id: str
    """Of the last checkpoint before: its answers are shown."""
    after_plan_id: str
    """Of the newest checkpoint."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkLedger:
    """Everything about one benchmark."""

    benchmark: str
    suite: str
    metric: str
    higher_is_better: bool
    steps: tuple[int, ...]
    """Checkpoints that count: enough samples scored, measured as the newest one."""
    passed_over: tuple[int, ...]
    """Checkpoints with too few scored samples."""
    measured_otherwise: tuple[int, ...]
    """Checkpoints that cannot be compared with the newest one."""
    whole: LedgerRow
    subsets: tuple[LedgerRow, ...]
    """The largest loss first; () where there is one subset only."""
    since: Since | None
    """None: fewer than two marked phases have checkpoints."""
    events: tuple[StepEvents, ...]
    """All samples, step by step. Much of it is chance: half of a healthy plateau's samples change."""
    window: Window | None
    lost: tuple[str, ...]
    """Ids of lost samples, the firmest first."""
    details: tuple[LostSample, ...]
    """The first of them."""
    coverage: tuple[float, ...] = ()
    """At every one of `steps`: the share of the planned samples that have a score."""


@dataclass(frozen=True, kw_only=True)
class PhaseTransfer:
    """What later training did to what one phase had taught."""

    phase: str | None
    """None: what no phase taught."""
    transfer: BackwardTransfer


@dataclass(frozen=True, kw_only=True)
class RunLedger:
    """The ledger of one run."""

    run_id: str
    steps: tuple[int, ...]
    """Of all its benchmarks."""
    phases: tuple[Phase, ...]
    benchmarks: tuple[BenchmarkLedger, ...]
    """The largest loss first."""
    transfers: tuple[PhaseTransfer, ...]
    """In the order of the phases."""
    backward_transfer: BackwardTransfer | None
    """Over all benchmarks that were measured after they had been taught."""
