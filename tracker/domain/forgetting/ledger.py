"""The forgetting ledger of a run: benchmarks, their subsets, their phases and their lost samples. Pure.

The ledger uses scores only. `texts.with_texts` adds prompts and answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tracker.domain.forgetting import sample_lives, types
from tracker.domain.forgetting.levels import LedgerSubject, forgetting_of, peak_rows
from tracker.domain.forgetting.subsets import subset_units
from tracker.domain.forgetting.transfer import (
    PhaseSpan,
    Teaching,
    backward_transfer,
    phase_spans,
    teaching_of,
)
from tracker.domain.records.types import Measure, Policy
from tracker.domain.regression.blocks import peak_width
from tracker.domain.regression.detector import Track, jitter_of
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.matrix import BoolArray, FloatArray, IntArray
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import BenchmarkSeries
from tracker.domain.verdicts.candidates import phase_start


def run_ledger(scores: RunScores, policy: Policy, *, details: int) -> types.RunLedger:
    """Return the ledger of a run, from each benchmark's newest series.

    `details` is the number of lost samples to describe for each benchmark.
    """
    cases: list[_Case] = []
    for suite in dict.fromkeys(key.suite for key in scores.series):
        cases += _cases(scores, suite, policy)
    ledgers = sorted((_ledger_of(case, scores, details) for case in cases), key=lambda ledger: _loss(ledger.whole))
    taught = [(case.series.key.benchmark, case.teaching) for case in cases if case.teaching is not None]
    return types.RunLedger(
        run_id=scores.run_id,
        steps=tuple(sorted(set().union(*(ledger.steps for ledger in ledgers)))),
        phases=policy.phases,
        benchmarks=tuple(ledgers),
        transfers=tuple(_transfers(taught, [*(p.name for p in policy.phases), None])),
        backward_transfer=backward_transfer(taught),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Case:
    series: BenchmarkSeries
    whole: LedgerSubject
    rows: IntArray
    """Rows of the checkpoints that count."""
    spans: tuple[PhaseSpan, ...]
    teaching: Teaching | None


def _cases(scores: RunScores, suite: str, policy: Policy) -> list[_Case]:
    """Return the benchmarks of one suite; their jitter is estimated together."""
    newest = [found[-1] for name in scores.benchmarks() if (found := scores.of(name, suite))]
    tracks = [_track(series, policy) for series in newest]
    jitters = jitter_of(tracks)
    return [_case(series, t, j, policy) for series, t, j in zip(newest, tracks, jitters, strict=True)]


def _track(series: BenchmarkSeries, policy: Policy) -> Track:
    """Return the checkpoints that count; their jitter is estimated from the newest phase, as for verdicts."""
    rows = series.whole_rows(policy.min_coverage)  # the state of a sample that was not evaluated is unknown
    noise_from = phase_start(policy.phases, [series.steps[row] for row in rows])
    return Track(scores=series.matrices[Measure.SCORE], rows=rows, noise_from=noise_from)


def _case(series: BenchmarkSeries, track: Track, jitter: Jitter, policy: Policy) -> _Case:
    rows = track.rows
    whole = LedgerSubject(
        track=track,
        jitter=jitter,
        steps=series.steps,
        higher_is_better=series.higher_is_better,
        chance=policy.chance.get(series.key.benchmark),
    )
    spans = phase_spans(policy.phases, series.steps, rows)
    teaching = teaching_of(whole, spans) if spans else None
    return _Case(series=series, whole=whole, rows=rows, spans=spans, teaching=teaching)


def _transfers(taught: Sequence[tuple[str, Teaching]], names: Sequence[str | None]) -> Iterator[types.PhaseTransfer]:
    for name in names:
        own = [(b, t) for b, t in taught if (t.span.phase.name if t.span else None) == name]
        transfer = backward_transfer(own)
        if transfer is not None:
            yield types.PhaseTransfer(phase=name, transfer=transfer)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shares:
    """Share of right answers of each sample in the two windows, both of shape (n,)."""

    windows: sample_lives.Windows
    before: FloatArray
    after: FloatArray

    @property
    def lost(self) -> BoolArray:
        return sample_lives.is_lost(self.before, self.after)

    @property
    def width(self) -> int:
        return min(self.windows.before.size, self.windows.after.size)


def _ledger_of(case: _Case, scores: RunScores, details: int) -> types.BenchmarkLedger:
    series, key = case.series, case.series.key
    matrix = series.matrices[Measure.SCORE]
    steps = tuple(series.steps[row] for row in case.rows)
    lives = sample_lives.lives_of(matrix, case.rows)
    changes = sample_lives.event_matrix(lives)
    shares = _shares(case)
    lost = [] if shares is None else _firmest_first(case, lives, shares)
    subsets = [
        _row(name, unit, case.rows, columns, shares)
        for name, columns, unit in subset_units(series.subsets, case.whole, matrix)
    ]
    return types.BenchmarkLedger(
        benchmark=key.benchmark,
        suite=key.suite,
        metric=series.metric,
        higher_is_better=series.higher_is_better,
        steps=steps,
        passed_over=tuple(sorted({*series.steps} - {*steps})),
        measured_otherwise=_other_steps(scores, series),
        whole=_row("", case.whole, case.rows, np.arange(matrix.n_samples), shares),
        subsets=tuple(sorted(subsets, key=_loss)),
        since=None if case.teaching is None else _since(case.teaching),
        events=sample_lives.step_events(changes, steps),
        window=None if shares is None else _window(series, shares.windows),
        lost=tuple(series.sample_ids[at] for at in lost),
        details=() if shares is None else tuple(_details(case, lives, changes, shares, lost[:details])),
        coverage=tuple(map(float, series.coverage[case.rows])),
    )


def _row(name: str, unit: LedgerSubject, rows: IntArray, columns: IntArray, shares: _Shares | None) -> types.LedgerRow:
    means = unit.track.scores.means[rows]
    return types.LedgerRow(
        subset=name,
        samples=int(columns.size),
        means=tuple(None if np.isnan(m) else m if unit.higher_is_better else 1.0 - m for m in means.tolist()),
        forgetting=forgetting_of(unit),
        flow=sample_lives.flow_between(shares.before[columns], shares.after[columns], shares.width) if shares else None,
    )


def _since(teaching: Teaching) -> types.Since:
    low, high = teaching.test.interval()
    return types.Since(
        taught_by=teaching.span.phase.name if teaching.span else None,
        reference=teaching.reference,
        last=teaching.last,
        change=teaching.test.delta,
        ci_low=low,
        ci_high=high,
    )


def _other_steps(scores: RunScores, series: BenchmarkSeries) -> tuple[int, ...]:
    others = (other for other in scores.of(series.key.benchmark, series.key.suite) if other is not series)
    return tuple(sorted({step for other in others for step in other.steps} - set(series.steps)))


def _shares(case: _Case) -> _Shares | None:
    """Return the shares at the end of the phase that taught it, else at the peak, and at the newest checkpoints."""
    matrix = case.series.matrices[Measure.SCORE]
    if np.any((matrix.palette < 0) | (matrix.palette > 1)):
        return None
    before = _known_at(case)
    windows = (
        None if before is None else sample_lives.windows_around(case.rows, before, peak_width(None, case.rows.size))
    )
    if windows is None:
        return None
    return _Shares(
        windows=windows,
        before=sample_lives.known_share(matrix, windows.before),
        after=sample_lives.known_share(matrix, windows.after),
    )


def _known_at(case: _Case) -> IntArray | None:
    taught = case.teaching.span if case.teaching else None
    # The newest phase has no end yet, so the end of its teaching cannot be the reference.
    if taught is not None and taught is not case.spans[-1]:
        return taught.rows
    return peak_rows(case.whole)


def _firmest_first(case: _Case, lives: sample_lives.Lives, shares: _Shares) -> list[int]:
    """Return the lost samples: first those right at the border and wrong now, then by change and consistency."""
    at = np.flatnonzero(shares.lost)
    border = np.searchsorted(case.rows, shares.windows.before[-1], side="right")
    is_before = (np.arange(case.rows.size) < border)[:, np.newaxis]
    firm = np.count_nonzero(lives.scored[:, at] & (lives.right[:, at] == is_before), axis=0)
    shown = lives.right[border - 1] & ~lives.right[-1] & lives.scored[border - 1] & lives.scored[-1]
    change = shares.before[at] - shares.after[at]
    order = np.lexsort((at, -firm, -change, ~shown[at]))
    return [int(sample) for sample in at[order]]


def _details(
    case: _Case, lives: sample_lives.Lives, changes: NDArray[np.int8], shares: _Shares, lost: Sequence[int]
) -> Iterator[types.LostSample]:
    series = case.series
    steps = tuple(series.steps[row] for row in case.rows)
    for sample in lost:
        right, scored = lives.right[:, sample].tolist(), lives.scored[:, sample].tolist()
        yield types.LostSample(
            sample_id=series.sample_ids[sample],
            subset=series.subsets[sample],
            known_before=float(shares.before[sample]),
            known_after=float(shares.after[sample]),
            right=tuple(r if s else None for r, s in zip(right, scored, strict=True)),
            events=sample_lives.sample_events(changes[:, sample], steps),
        )


def _window(series: BenchmarkSeries, windows: sample_lives.Windows) -> types.Window:
    return types.Window(
        before_steps=tuple(series.steps[row] for row in windows.before),
        after_steps=tuple(series.steps[row] for row in windows.after),
        before_plan_id=series.plans[windows.before[-1]].id,
        after_plan_id=series.plans[windows.after[-1]].id,
    )


def _loss(row: types.LedgerRow) -> float:
    if row.forgetting:
        return -row.forgetting.forgetting
    return float("inf")
