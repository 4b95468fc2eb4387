"""Losses: what they took, when they began and how they ended. Frozen values."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Measure(StrEnum):
    """Quantity measured for every answer. All are oriented: up is better."""

    SCORE = "score"
    """x, or 1 - x if lower is better."""
    OUTPUT_LENGTH = "output length"
    """1 - output tokens / maximum answer length: it goes down if answers get longer."""
    COMPLETENESS = "completeness"
    """1, or 0 for an answer that reached the maximum length."""


class Closing(StrEnum):
    """How an incident ended."""

    RECOVERED = "recovered"
    ACCEPTED = "accepted"
    """A user accepted this level as the new normal."""
    TRANSIENT = "transient"
    """It was of one checkpoint: the next one is back."""
    SUPERSEDED = "superseded"
    """Training went back to a step before it: the checkpoint that raised the alarm was left behind."""
    EXPLAINED = "explained"
    """Answers are longer, or more of them are truncated, and the score improved: that is no loss."""
    CORRECTED = "corrected"
    """With earlier checkpoints that were evaluated later, no verdict shows it any more."""
    REMEASURED = "remeasured"
    """The settings changed: a checkpoint from before it and the newest one were evaluated with the new ones, which show
    whether the loss lasts. It is open again if the settings change back."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """What a loss took, as every view shows it: the checkpoint just before it compared with the newest one."""

    baseline_steps: tuple[int, ...]
    """Step of the checkpoint just before the loss; if it alone is clearly below the baseline of the test that found the
    loss, the steps of that baseline. It stays the same while the loss is open."""
    before: float
    """Mean score of the baseline, as the benchmark reports it."""
    newest_steps: tuple[int, ...]
    """Step of the newest checkpoint with the loss; if it alone does not show it, the newest 10 since the onset."""
    now: float
    """Mean score of these checkpoints."""
    delta: float
    """`now` - `before` on the samples that both sides have; up is better. The interval is of 95 %, with jitter."""
    ci_low: float
    ci_high: float
    n_common: int
    n_lost: int
    """As in `Comparison`."""
    n_gained: int
    is_pinned: bool = False
    """Whether the baseline is the pinned checkpoint, which may be of another run."""
    stderr: float | None = None
    """Standard error of `delta`, with jitter; None, like `p_worse`, in older records."""
    p_worse: float | None = None
    """One-sided p of "worse" for this pair alone."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One loss, from the checkpoint that raised the alarm to its end. Each of the two causes one notification.

    `key` identifies it.
    """

    run_id: str
    suite: str
    benchmark: str
    """Empty for all benchmarks of the suite together."""
    subset: str = ""
    """Empty for the whole benchmark."""
    measure: Measure = Measure.SCORE
    opened_step: int
    """Step of the checkpoint that raised the alarm."""
    onset_step: int
    """First step of the loss, as far as the evidence can place it; at most `opened_step`."""
    forgotten: bool = False
    """Whether a score that had been learned was below the peak at three checkpoints in a row."""
    benchmarks: tuple[str, ...] = ()
    """If it is of all together: those that fell, the largest fall first."""
    provisional: bool = False
    """Whether it is of all together and only one checkpoint shows it yet: no notification."""
    closed_step: int | None = None
    """Step at which it ended; None while it is open."""
    closed_by: Closing | None = None
    last_step: int | None = None
    """Last step with the loss; None unless it recovered or was transient."""
    drop: Drop | None = None
    """What it took so far; None for all benchmarks together."""
    opened_digest: str
    """Digest of the checkpoint that raised the alarm."""
    closed_digest: str = ""
    """Digest of the checkpoint that showed the recovery; empty if none did."""
    series: tuple[str, ...] = ()
    """Settings (`SeriesKey.settings`) of the benchmark, or of each of `benchmarks`. Empty: any, in older incidents."""

    @property
    def key(self) -> tuple[str | int, ...]:
        """What is equal for one incident: which benchmarks fell together may change while it lasts."""
        series = self.series if self.benchmark else ()
        subject = (self.run_id, self.suite, self.benchmark, self.subset, self.measure)
        return (*subject, self.opened_step, *series)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A user's decision that a benchmark's level at a step is the new normal.

    It is identified by run, step, benchmark and series.
    """

    run_id: str
    step: int
    benchmark: str
    from_step: int
    """Checkpoints before it no longer count for this benchmark."""
    reason: str
    accepted_at: datetime
    series: str = ""
    """Settings (`SeriesKey.settings`) of the accepted result. Empty: any, in older acceptances."""
