"""The forgetting ledger of a run: benchmarks, their subsets, their phases and their lost samples. Pure.

The ledger uses scores only. `texts.with_texts` adds prompts and answers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from eval_jobs.harness.known_tasks import chance_of_metric
from tracker.domain.forgetting import sample_lives, types
from tracker.domain.forgetting.levels import LedgerSubject, forgetting_of, last_width, peak_rows
from tracker.domain.forgetting.subsets import subset_units
from tracker.domain.forgetting.transfer import (
    Origin,
    PhaseSpan,
    ReferenceKind,
    backward_transfer,
    origin_of,
    phase_spans,
)
from tracker.domain.records.losses import Closing, Drop, Incident, Measure
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Baseline
from tracker.domain.regression.blocks import Blocks, peak_width
from tracker.domain.regression.detector import Track, jitter_of
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.flips import Flips, flips
from tracker.domain.scores.matrix import BoolArray, FloatArray, IntArray
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import BenchmarkSeries
from tracker.domain.verdicts.candidates import phase_start
from tracker.domain.verdicts.losses.incidents import counting, is_of_series


def run_ledger(
    scores: RunScores, policy: Policy, incidents: Sequence[Incident] = (), *, details: int
) -> types.RunLedger:
    """Return the ledger of a run, from each benchmark's newest series.

    A benchmark with an open or accepted loss of `incidents` is compared as that loss is (`Drop`), any other one with
    its peak. As in verdicts, checkpoints of a loss that is over are no part of either. `details` is the number of lost
    samples to describe for each benchmark.
    """
    cases: list[_Case] = []
    for suite in dict.fromkeys(key.suite for key in scores.series):
        cases += _cases(scores, suite, policy, incidents)
    ledgers = sorted((_ledger_of(case, scores, details) for case in cases), key=lambda ledger: _loss(ledger.whole))
    origins = [(case.series.key.benchmark, case.origin) for case in cases if case.origin is not None]
    return types.RunLedger(
        run_id=scores.run_id,
        steps=tuple(sorted(set().union(*(ledger.steps for ledger in ledgers)))),
        phases=policy.phases,
        benchmarks=tuple(ledgers),
        transfers=tuple(_transfers(origins, [*(p.name for p in policy.phases), None])),
        backward_transfer=backward_transfer(origins),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Case:
    series: BenchmarkSeries
    whole: LedgerSubject
    rows: IntArray
    """Rows of the checkpoints that count."""
    spans: tuple[PhaseSpan, ...]
    origin: Origin | None
    losses: Mapping[str, Sequence[Incident]] = field(default_factory=dict)
    """Losses by subset, the oldest first; that of the whole benchmark is empty."""

    @cached_property
    def before(self) -> IntArray | None:
        """Rows before an open loss; without one, the end of the phase in which it was learned, else of the peak."""
        if self.whole.loss is not None:
            return self.whole.loss.base
        learned = self.origin.span if self.origin else None
        width = min(sample_lives.WINDOW, peak_width(None, self.rows.size))
        # The newest phase has no end yet, so it cannot be the reference.
        if learned is not None and learned is not self.spans[-1]:
            return learned.rows[-width:]
        peak = peak_rows(self.whole)
        return None if peak is None else peak[-width:]

    @cached_property
    def newest(self) -> Flips | None:
        """Samples that the newest checkpoint alone changed against the rows before; None if they are not before it."""
        matrix = self.series.matrices[Measure.SCORE]
        is_share = not np.any((matrix.palette < 0) | (matrix.palette > 1))
        if is_share and self.before is not None and self.before[-1] < self.rows[-1]:
            return flips(matrix, self.rows[-1:], self.before)
        return None


def _cases(scores: RunScores, suite: str, policy: Policy, incidents: Sequence[Incident]) -> list[_Case]:
    """Return the benchmarks of one suite; their jitter is estimated together."""
    newest = [found[-1] for name in scores.benchmarks() if (found := scores.of(name, suite))]
    known = [_losses_of(series, incidents) for series in newest]
    tracks = [_track(series, policy) for series in newest]
    jitters = jitter_of(tracks)
    run_start = min(series.steps[0] for series in scores.series.values())
    cases = []
    for series, track, jitter, losses in zip(newest, tracks, jitters, known, strict=True):
        starts = (run_start, min(s.steps[0] for s in scores.of(series.key.benchmark, suite)))
        case = _case(series, track, jitter, policy, starts)
        cases.append(replace(case, whole=_with_losses(case.whole, losses.get("", ())), losses=losses))
    return cases


def _losses_of(series: BenchmarkSeries, incidents: Iterable[Incident]) -> dict[str, list[Incident]]:
    """Return the losses of a benchmark and its subsets with the settings of its series."""
    found: dict[str, list[Incident]] = {}
    settings = {series.key.benchmark: series.key.settings}
    for incident in incidents:
        is_of = incident.suite == series.key.suite and incident.benchmark in {series.key.benchmark, ""}
        if (
            is_of
            and is_of_series(incident, settings)
            and incident.measure is Measure.SCORE
            and incident.opened_step in series.steps
        ):
            found.setdefault(incident.subset, []).append(incident)
    return found


def _with_losses(unit: LedgerSubject, losses: Sequence[Incident]) -> LedgerSubject:
    """Return the subject without checkpoints of losses that are over, compared as its open or accepted loss is."""
    steps = [unit.steps[row] for row in unit.counted]
    counts = np.array(counting(steps, losses, ()), dtype=bool) if steps else np.ones(0, dtype=bool)
    unit = replace(unit, counted=unit.counted[counts])
    for loss in reversed(losses):
        if loss.drop is not None and not loss.drop.is_pinned and loss.closed_by in {None, Closing.ACCEPTED}:
            return _with_loss(unit, loss, loss.drop)
    return unit


def _with_loss(unit: LedgerSubject, loss: Incident, drop: Drop) -> LedgerSubject:
    """Return the subject as one with a loss, if all checkpoints of the loss count here too.

    After an accepted loss, the newest checkpoints take the place of those that showed it.
    """
    base, new = _rows_at(unit, drop.baseline_steps), _rows_at(unit, drop.newest_steps)
    if (base.size, new.size) != (len(drop.baseline_steps), len(drop.newest_steps)):
        return unit
    known: Drop | None = drop
    if loss.closed_step is not None and unit.counted[-1] > new[-1]:
        since = unit.counted[unit.counted >= new[0]]
        known, new = None, since[-min(unit.newest, last_width(since.size)) :]
    blocks = Blocks(baseline=Baseline.GIVEN, new=new, base=base)
    return replace(unit, loss=blocks, drop=known, accepted_step=loss.closed_step)


def _rows_at(unit: LedgerSubject, steps: Sequence[int]) -> IntArray:
    return np.array([row for row in unit.track.rows if unit.steps[row] in steps], dtype=np.int64)


def _track(series: BenchmarkSeries, policy: Policy) -> Track:
    """Return the checkpoints that count; their jitter is estimated from the newest phase, as for verdicts."""
    rows = series.whole_rows(policy.min_coverage)  # the state of a sample that was not evaluated is unknown
    noise_from = phase_start(policy.phases, [series.steps[row] for row in rows])
    return Track(scores=series.matrices[Measure.SCORE], rows=rows, noise_from=noise_from)


def _case(series: BenchmarkSeries, track: Track, jitter: Jitter, policy: Policy, starts: tuple[int, int]) -> _Case:
    """Return one benchmark; `starts`: first step of the run, and the first at which it was measured in any way."""
    rows, name = track.rows, series.key.benchmark
    spans = phase_spans(policy.phases, series.steps, rows)
    sizes = [span.rows.size for span in spans] or [max(1, rows.size)]
    whole = LedgerSubject(
        track=track,
        counted=track.rows,
        jitter=jitter,
        steps=series.steps,
        higher_is_better=series.higher_is_better,
        chance=policy.chance.get(name, chance_of_metric(name, series.metric)),
        widest=median_low(sizes),
        newest=sizes[-1],
    )
    is_late = bool(spans) and starts[0] <= spans[0].phase.from_step < starts[1]
    origin = origin_of(whole, spans, is_late=is_late) if spans else None
    return _Case(series=series, whole=whole, rows=rows, spans=spans, origin=origin)


def _transfers(origins: Sequence[tuple[str, Origin]], names: Sequence[str | None]) -> Iterator[types.PhaseTransfer]:
    for name in names:
        own = [(b, o) for b, o in origins if (o.span.phase.name if o.span else None) == name]
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
        _row(name, _with_losses(replace(unit, drop=None), case.losses.get(name, ())), case, columns, shares)
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
        whole=_row("", case.whole, case, np.arange(matrix.n_samples), shares),
        subsets=tuple(sorted(subsets, key=_loss)),
        chance=case.whole.chance,
        since=None if case.origin is None else _since(case.origin),
        events=sample_lives.step_events(changes, steps),
        window=None if shares is None else _window(series, shares.windows),
        lost=tuple(series.sample_ids[at] for at in lost),
        details=() if shares is None else tuple(_details(case, lives, changes, shares, lost[:details])),
        coverage=tuple(map(float, series.coverage[case.rows])),
        accepted_step=case.whole.accepted_step,
    )


def _row(name: str, unit: LedgerSubject, case: _Case, columns: IntArray, shares: _Shares | None) -> types.LedgerRow:
    if unit.loss is not None:
        shares = _shares_in(case, unit.loss.base, unit.loss.new)
    means = unit.track.scores.means[case.rows]
    return types.LedgerRow(
        subset=name,
        samples=int(columns.size),
        means=tuple(None if np.isnan(m) else m if unit.higher_is_better else 1.0 - m for m in means.tolist()),
        forgetting=forgetting_of(unit),
        flow=sample_lives.flow_between(shares.before[columns], shares.after[columns], shares.width) if shares else None,
        newest=None if case.newest is None else _newest(case.newest, columns),
    )


def _newest(found: Flips, columns: IntArray) -> types.NewestFlow:
    lost, gained, scored = (
        int(np.count_nonzero(a[columns])) for a in (found.is_lost, found.is_gained, found.is_scored)
    )
    return types.NewestFlow(lost=lost, gained=gained, samples=scored)


def _since(origin: Origin) -> types.Since:
    low, high = origin.test.interval()
    return types.Since(
        learned_in=origin.span.phase.name if origin.span else None,
        reference_is=ReferenceKind.PHASE_END if origin.span else ReferenceKind.FIRST,
        reference=origin.reference,
        last=origin.last,
        change=origin.test.delta,
        ci_low=low,
        ci_high=high,
        retention=origin.retention,
    )


def _other_steps(scores: RunScores, series: BenchmarkSeries) -> tuple[int, ...]:
    others = (other for other in scores.of(series.key.benchmark, series.key.suite) if other is not series)
    return tuple(sorted({step for other in others for step in other.steps} - set(series.steps)))


def _shares(case: _Case) -> _Shares | None:
    """Return the shares before a loss and at the newest checkpoints; None with too few of either."""
    if case.before is None or case.newest is None:
        return None
    if case.whole.loss is not None:
        return _shares_in(case, case.whole.loss.base, case.whole.loss.new)
    windows = sample_lives.windows_around(case.rows, case.before, peak_width(None, case.rows.size))
    if windows is None:
        return None
    return _shares_in(case, windows.before, windows.after)


def _shares_in(case: _Case, before: IntArray, after: IntArray) -> _Shares:
    matrix = case.series.matrices[Measure.SCORE]
    return _Shares(
        windows=sample_lives.Windows(before=before, after=after),
        before=sample_lives.known_share(matrix, before),
        after=sample_lives.known_share(matrix, after),
    )


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
