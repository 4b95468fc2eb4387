"""Records of the forgetting ledger, for display and for JSON. Pure.

RunLedger > BenchmarkLedger > LedgerRow (the benchmark, then its subsets), plus phases and lost samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracker.domain.forgetting.levels import CheckpointBlock, Forgetting
from tracker.domain.forgetting.sample_lives import Event, Flow, StepEvents
from tracker.domain.forgetting.transfer import BackwardTransfer, ReferenceKind
from tracker.domain.records.policy import Phase


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """A benchmark, or one of its subsets."""

    subset: str
    """Empty: the whole benchmark."""
    samples: int
    means: tuple[float | None, ...]
    """Score at every step of the benchmark, as it is reported; None if no sample has a score."""
    forgetting: Forgetting | None
    """None with too few checkpoints or samples."""
    flow: Flow | None
    """None with too few checkpoints, or if scores are not between 0 and 1."""
    newest: NewestFlow | None
    """None with too few checkpoints before the newest one, or if scores are not between 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class NewestFlow:
    """Samples that changed from most checkpoints of the window before to the newest checkpoint alone."""

    lost: int
    gained: int
    samples: int
    """Samples scored on both sides."""


@dataclass(frozen=True, kw_only=True)
class Since:
    """Change of a benchmark since it was learned, or first measured."""

    learned_in: str | None
    """The phase in which it rose most above all before; None if it rose in none, or was known when first measured."""
    reference_is: ReferenceKind
    reference: CheckpointBlock
    """The end of that phase, or the first measurement."""
    last: CheckpointBlock
    change: float
    """last - reference, up is better, on their common samples."""
    ci_low: float
    """95 % interval of the change."""
    ci_high: float
    retention: float | None
    """(last - floor) / (reference - floor), from 0 to 1: the floor is the score of guessing if known, else the first
    measurement. None if the reference is not above the floor, or is the first measurement."""


@dataclass(frozen=True, kw_only=True)
class LostSample:
    """One lost sample."""

    sample_id: str
    subset: str
    known_before: float
    """Share of right answers in the window before."""
    known_after: float
    right: tuple[bool | None, ...]
    """Whether it was right, at every step of the benchmark; None without a score."""
    events: tuple[Event, ...]
    texts: LostTexts | None = None
    """None if not read, or not kept."""


@dataclass(frozen=True, kw_only=True)
class LostTexts:
    """Prompt and target of a sample, with the answers of two checkpoints."""

    prompt: str
    target: str
    answer_before: str | None
    """None if deleted to save space."""
    right_before: bool
    answer_after: str | None
    right_after: bool


@dataclass(frozen=True, kw_only=True)
class Window:
    """The two groups of checkpoints between which samples count as lost."""

    before_steps: tuple[int, ...]
    after_steps: tuple[int, ...]
    before_plan_id: str
    """Plan of the last checkpoint before; its answers are shown."""
    after_plan_id: str
    """Plan of the newest checkpoint."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkLedger:
    """Forgetting ledger of one benchmark."""

    benchmark: str
    suite: str
    metric: str
    higher_is_better: bool
    steps: tuple[int, ...]
    """Checkpoints that count: enough samples scored, measured like the newest one."""
    passed_over: tuple[int, ...]
    """Checkpoints that do not count: too few samples scored, or only a part evaluated."""
    measured_otherwise: tuple[int, ...]
    """Checkpoints that cannot be compared with the newest one."""
    whole: LedgerRow
    subsets: tuple[LedgerRow, ...]
    """The largest loss first; () if there is only one subset."""
    chance: float | None
    """Score of guessing; None if unknown."""
    since: Since | None
    """None if fewer than two marked phases have checkpoints, or with too few common samples."""
    events: tuple[StepEvents, ...]
    """Changes of all samples by step. Many are due to chance: half of a healthy plateau's samples change."""
    window: Window | None
    lost: tuple[str, ...]
    """IDs of lost samples, the clearest first."""
    details: tuple[LostSample, ...]
    """Details of the first ones in `lost`."""
    coverage: tuple[float, ...] = ()
    """Share of the planned samples that have a score, at each of `steps`."""
    accepted_step: int | None = None
    """Step at which the level of the loss shown here was accepted; None: it is open, or there is none."""


@dataclass(frozen=True, kw_only=True)
class PhaseTransfer:
    """Effect of later training on what was learned in one phase."""

    phase: str | None
    """Name of the phase; None for the benchmarks that are compared with their first measurement."""
    transfer: BackwardTransfer


@dataclass(frozen=True, kw_only=True)
class RunLedger:
    """The ledger of one run."""

    run_id: str
    steps: tuple[int, ...]
    """Steps of all its benchmarks."""
    phases: tuple[Phase, ...]
    benchmarks: tuple[BenchmarkLedger, ...]
    """The largest loss first."""
    transfers: tuple[PhaseTransfer, ...]
    """In the order of the phases."""
    backward_transfer: BackwardTransfer | None
    """Over all benchmarks that were measured after their references."""
