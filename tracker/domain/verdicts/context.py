"""All inputs for the verdicts on a record: what is known of its run and of its training. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eval_jobs.types import EvalRecord
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.losses import Acceptance, Closing, Incident
from tracker.domain.records.policy import Policy
from tracker.domain.records.reasons import Disruption
from tracker.domain.regression.budget import SCORE_SHARE, SUITE_SHARE
from tracker.domain.regression.suite import AT_LEAST
from tracker.domain.scores.mean_series import Means
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import settings_by_benchmark
from tracker.domain.scores.series_changes import SeriesChange
from tracker.domain.verdicts.hypothesis import Subject
from tracker.domain.verdicts.losses.incidents import ends_earlier, incidents_at, is_of_series, reopened, subject_of


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The inputs for verdicts on a run in addition to its scores."""

    incidents: tuple[Incident, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    pinned: RunScores | None = None
    """Scores of the run that `policy.pinned` names."""
    records: tuple[EvalRecord, ...] = ()
    """Records of the run, without samples: for latencies, branches and imported means."""
    means: Means | None = None
    """All imported means of the run; None: take them from `records`."""
    calibrations: tuple[Calibration, ...] = ()
    """Calibrations of all runs: the noise of repeated evaluations."""
    changes: tuple[SeriesChange, ...] = ()
    """Changes of settings, by time."""
    disruptions: tuple[Disruption, ...] = ()
    """Moments of the training after which a dip is expected, by step."""
    opens_late: bool = False
    """Whether a checkpoint that is not the newest opens losses: to see which of them later ones end."""


LARGEST_DIP = 0.1
"""Largest loss that a disruption of the training explains: 10 points."""


@dataclass(frozen=True, kw_only=True)
class Dips:
    """What the disruptions of the training so far explain."""

    expected_after: Disruption | None = None
    """The disruption after which a dip is expected at the candidate."""
    since_step: int | None = None
    """First checkpoint after it."""
    over: frozenset[int] = frozenset()
    """Steps of the checkpoints in earlier dips, which count in no later test."""

    def explain(self, change: float) -> bool:
        """Return whether a new loss, negative, is an expected dip. A larger one needs attention at once."""
        return self.expected_after is not None and -change <= LARGEST_DIP


NO_DIPS = Dips()


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgingContext:
    """All inputs for the verdicts on a record."""

    record: EvalRecord
    scores: RunScores
    """Of the candidate's branch."""
    run_context: RunContext
    """Of the candidate's branch."""
    policy: Policy
    is_left: bool = False
    """Whether training went back to before the candidate later: it is not on the newest branch."""
    dips: Dips = NO_DIPS
    ended: tuple[Incident, ...] = ()
    """Losses that the candidate shows to be over, as they ended: their checkpoints count in no test."""

    @property
    def step(self) -> int:
        """Step of the candidate."""
        return self.record.plan.checkpoint.step

    @property
    def digest(self) -> str:
        """Digest of the candidate's weights."""
        return self.record.plan.checkpoint.digest

    @property
    def benchmarks(self) -> int:
        """K: number of benchmarks of the suite and of the other suites of the run, which share one level."""
        suite = self.record.plan.suite
        others = {(key.suite, key.benchmark) for key in self.scores.series if key.suite != suite.name}
        return max(1, len(suite.benchmarks) + len(others))

    @property
    def alpha_of_suite(self) -> float:
        """Part of the run's alpha for all benchmarks of the suite together; 0 with too few of them."""
        if self.benchmarks < AT_LEAST:
            return 0.0
        suites = {key.suite for key in self.scores.series} | {self.record.plan.suite.name}
        return self.policy.alpha * SCORE_SHARE * SUITE_SHARE / len(suites)

    @property
    def suite(self) -> Subject:
        """All benchmarks of the suite together."""
        return Subject(suite=self.record.plan.suite.name, benchmark="")

    @cached_property
    def series(self) -> Mapping[str, str]:
        """The candidate's settings by benchmark."""
        return settings_by_benchmark(self.record)

    def newest_settings(self, benchmark: str) -> str | None:
        """Return the settings with which a benchmark is evaluated now; None: unknown, as before any was noted."""
        suite = self.record.plan.suite.name
        known = [c.settings for c in self.run_context.changes if (c.suite, c.benchmark) == (suite, benchmark)]
        return known[-1] if known else None

    def acceptances_of(self, benchmark: str) -> tuple[Acceptance, ...]:
        """Return the accepted levels of a benchmark with the candidate's settings."""
        known = (a for a in self.run_context.acceptances if a.benchmark == benchmark)
        return tuple(a for a in known if a.series in ("", self.series.get(benchmark)))

    def accepted_step(self, benchmark: str) -> int | None:
        """Return the step of the last accepted level up to the candidate; None without one."""
        return max((a.step for a in self.acceptances_of(benchmark) if a.step <= self.step), default=None)

    @property
    def own_incidents(self) -> tuple[Incident, ...]:
        """The incidents with the candidate's settings: results with others neither show nor end a loss."""
        own = (e for e in self.run_context.incidents if is_of_series(e, self.series))
        return tuple(reopened(e) if e.closed_by is Closing.REMEASURED else e for e in own)

    def may_change(self, change: Incident) -> bool:
        """Return whether the candidate changes a loss although it is not the newest."""
        if self.is_left:
            return False
        if self.run_context.opens_late and change.opened_step == self.step:
            return True
        return ends_earlier(change, self.run_context.incidents)

    def is_known(self, loss: Incident) -> bool:
        """Return whether a loss of this subject and onset is stored."""
        for one in self.run_context.incidents:
            if (subject_of(one), one.onset_step) == (subject_of(loss), loss.onset_step):
                return True
        return False

    def incidents_of(self, subject: Subject) -> tuple[Incident, ...]:
        """Return `own_incidents` of `subject` as of just before the candidate, and those that end there."""
        ended = [e for e in self.ended if subject_of(e) == subject]
        over = {e.opened_step for e in ended}
        known = incidents_at(self.own_incidents, subject, self.step)
        return (*(e for e in known if e.opened_step not in over), *ended)
