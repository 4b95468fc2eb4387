"""The shipped engine where a part of each benchmark is asked first, beside the same engine with everything asked.

    watched = watch(series, Screening(screen=Screen(samples=500, share=0.1), every=10, first=20))

Both see the same answers: what differs is only what was asked. The rules are the product's own: `screen_of` chooses the
samples, a suspicious screen is asked whole beside one reference, and so are the checkpoints that a suspicious whole
result is held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.verdicts.series import CHECKPOINTS, Benchmark, Series
from benchmarks.verdicts.view import ALPHA, Bools
from eval_jobs.screening import Question, screen_of
from eval_jobs.types import Screen
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import VerdictWord
from tracker.domain.regression.budget import SCORE_SHARE
from tracker.domain.regression.detector import ErrorBudget, Evidence, Track, evidence_of, jitter_of
from tracker.domain.regression.screened import ScreenedScores, Stratum
from tracker.domain.scores.matrix import IntArray, empty_matrix, inserted, without_rows
from tracker.domain.scores.statistics.estimated import estimated_score
from tracker.domain.verdicts.hypothesis import Thresholds, is_suspicious, losses, strongest_of, suspects, word_of
from tracker.domain.verdicts.screening import Screening

EVERYTHING = range(CHECKPOINTS)
THRESHOLDS = Thresholds(min_effect=Policy.min_effect, equivalence_margin=Policy.equivalence_margin)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What one way of asking came to on one run."""

    flags: Bools
    """(T, K): alarms."""
    asked: float
    """Samples that were asked / all."""
    loads: int
    """Plans that asked what screens had left out: each may have to load a checkpoint once more."""
    estimates: tuple[Estimates, ...]
    """Of every benchmark with screened results."""


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Estimated scores of the results of one benchmark that stayed screened, held against their full scores."""

    error: float
    """Mean of estimate - full score."""
    covered: float
    """Share with the full score inside the 95 % interval."""


def watch(series: Series, screening: Screening | None, judged: range = EVERYTHING) -> Watched:
    """Judge every checkpoint of a run when it comes.

    Args:
        series: the run.
        screening: None: everything is asked of all.
        judged: checkpoints that are judged; what comes before is whole in both ways, what comes after is not looked at.
    """
    whole = screening is None
    screen = Screen(samples=CHECKPOINTS**4) if screening is None else screening.screen
    followed = [_Followed(benchmark, screen) for benchmark in series.benchmarks]
    level = ErrorBudget(alpha=ALPHA * SCORE_SHARE, planned=CHECKPOINTS, benchmarks=len(followed))
    flags = np.zeros((CHECKPOINTS, len(followed)), dtype=bool)
    loads, since_whole = 0, 0
    for t in range(judged.stop):
        is_whole = whole or screening is None or t < screening.first or since_whole + 1 >= screening.every
        since_whole = 0 if is_whole else since_whole + 1
        for one in followed:
            one.ask(t, whole=is_whole)
        if t >= judged.start:
            flags[t], plans = _judged(followed, t, level)
            loads += plans
            for one in followed:
                one.estimate(t)
    total = judged.stop * sum(one.n for one in followed)
    estimates = tuple(one.estimates for one in followed if one.estimates is not None)
    return Watched(flags=flags, asked=sum(one.count for one in followed) / total, loads=loads, estimates=estimates)


# --- private


class _Followed:
    """One benchmark: what was asked of it so far.

    Its strata grow with it, as `screened_scores` would make them anew: that takes most of the time otherwise.
    """

    def __init__(self, benchmark: Benchmark, screen: Screen) -> None:
        self.n = benchmark.scores.shape[1]
        self.count = 0
        self._scores = benchmark.scores
        questions = [Question(key=f"{self.n} {i}", subset=str(group)) for i, group in enumerate(benchmark.groups)]
        chosen = screen_of(questions, screen)
        part = np.array([question.key in chosen for question in questions])
        self._columns = {"all": np.arange(self.n), "core": np.flatnonzero(part), "rest": np.flatnonzero(~part)}
        self._matrices = {name: empty_matrix(columns.size) for name, columns in self._columns.items()}
        self._is_whole: list[bool] = []
        self._planned_whole: list[int] = []
        self._errors: list[float] = []
        self._covered: list[bool] = []
        self._lost_from: int | None = None

    @property
    def track(self) -> Track:
        """Up to the newest checkpoint."""
        rows, everything = np.arange(len(self._is_whole)), self._matrices["all"]
        if all(self._is_whole):
            return Track(scores=everything, rows=rows, noise_to=self._lost_from)
        is_whole = np.array(self._is_whole)
        rest = Stratum(matrix=self._matrices["rest"], asked=is_whole)
        scores = ScreenedScores(
            everything=everything,
            planned_whole=np.isin(rows, self._planned_whole),
            core=self._matrices["core"],
            others=(rest,),
        )
        return Track(scores=scores, rows=rows, noise_to=self._lost_from)

    def open_loss(self, onset: int) -> None:
        """Keep the onset of a loss, as an open incident does; no planted loss ends."""
        if self._lost_from is None:
            self._lost_from = onset

    def is_whole(self, t: int) -> bool:
        """Return whether everything was asked of checkpoint `t`."""
        return self._is_whole[t]

    def ask(self, t: int, *, whole: bool) -> None:
        """Ask the newest checkpoint."""
        whole = whole or not self._columns["rest"].size
        self._is_whole.insert(t, whole)
        self._planned_whole += [t] * whole
        self._insert(t)
        self.count += self.n if whole else self._columns["core"].size

    def ask_rest(self, t: int) -> None:
        """Ask what was left out at `t`."""
        self._is_whole[t] = True
        self._matrices = {name: without_rows(matrix, [t]) for name, matrix in self._matrices.items()}
        self._insert(t)
        self.count += self._columns["rest"].size

    def estimate(self, t: int) -> None:
        """Estimate the score of checkpoint `t` if it stayed screened."""
        if not self._is_whole[t]:
            found = estimated_score(self._matrices["all"], t, np.array(self._planned_whole), None)
            if found is not None:
                self._errors.append(found.score - float(self._scores[t].mean()))
                self._covered.append(abs(self._errors[-1]) <= found.margin)

    @property
    def estimates(self) -> Estimates | None:
        """All estimates so far; None: there is none."""
        if not self._errors:
            return None
        return Estimates(error=float(np.mean(self._errors)), covered=float(np.mean(self._covered)))

    def ask_reference(self, base: IntArray) -> bool:
        """Ask what was left out at the newest of these checkpoints, unless one of them has everything."""
        if any(self._is_whole[row] for row in base):
            return False
        self.ask_rest(int(base.max()))
        return True

    def _insert(self, t: int) -> None:
        values = self._scores[t].astype(np.float64)
        if not self._is_whole[t]:
            values[self._columns["rest"]] = np.nan
        for name, columns in self._columns.items():
            self._matrices[name] = inserted(self._matrices[name], t, values[columns])


def _judged(followed: Sequence[_Followed], t: int, level: ErrorBudget) -> tuple[Bools, int]:
    """Return which benchmarks raise an alarm at the newest checkpoint, and how many plans asked what was left out.

    As the watcher does, it is judged again after each part of another checkpoint that a suspicious whole result asked
    for, with all that is known by then; what that look asks for comes behind what was asked before.
    """
    evidence = _evidence(followed, range(len(followed)), level)
    screens = [k for k in evidence if not followed[k].is_whole(t) and is_suspicious(evidence[k])]
    plans = int(bool(screens))
    for k in screens:
        followed[k].ask_rest(t)
        plans += followed[k].ask_reference(strongest_of(evidence[k]).blocks.base)
    whole = [k for k in evidence if followed[k].is_whole(t)]
    if screens:
        evidence = _evidence(followed, whole, level)
    flags = np.zeros(len(followed), dtype=bool)
    waiting: dict[tuple[int, int], None] = {}
    while True:
        for k in whole:
            word = word_of(evidence[k], THRESHOLDS)
            flags[k] |= word is VerdictWord.REGRESSED
            if word is VerdictWord.SUSPECT:
                waiting |= {(row, k): None for row in _neighbours(evidence[k]) if not followed[k].is_whole(row)}
        if not waiting:
            _open_losses(followed, evidence)
            return flags, plans
        row, k = next(iter(waiting))
        del waiting[row, k]
        followed[k].ask_rest(row)
        plans += 1
        evidence = _evidence(followed, whole, level)


def _open_losses(followed: Sequence[_Followed], evidence: Mapping[int, Sequence[Evidence]]) -> None:
    for k, tests in evidence.items():
        found = losses(tests, THRESHOLDS)
        if found and followed[k].is_whole(int(found[0].blocks.new[-1])):
            followed[k].open_loss(int(strongest_of(found).blocks.new[0]))


def _evidence(
    followed: Sequence[_Followed], chosen: Iterable[int], level: ErrorBudget
) -> Mapping[int, Sequence[Evidence]]:
    """Return the tests of some benchmarks at the newest checkpoint; the jitter is learned from all."""
    tracks = [one.track for one in followed]
    jitters = jitter_of(tracks)
    return {k: evidence_of(tracks[k], jitters[k], level) for k in chosen}


def _neighbours(evidence: Sequence[Evidence]) -> list[int]:
    """Return the checkpoints of the test that gives the word, as the watcher asks for them."""
    blocks = strongest_of(suspects(evidence, THRESHOLDS)).blocks
    return sorted(int(row) for row in (*blocks.base, *blocks.new))
