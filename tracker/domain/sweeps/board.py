"""Results of a sweep run: scores of every target and variant, and latency by load. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean

import numpy as np

from eval_jobs.types import (
    EvalPlan,
    EvalRecord,
    EvalResult,
    Outcome,
    Percentiles,
    ProbeFailure,
    ProbeLoad,
    ProbeOutcome,
    ProbeResult,
)
from tracker.domain.calibration.noise import share_interval
from tracker.domain.records.display import NOTHING, one_line, percent_text, signed_text
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.scores.pairing import pair
from tracker.domain.scores.statistics.paired import Spread, interval, paired_test
from tracker.domain.scores.summary import ScoreSummary, sample_means, summarise
from tracker.domain.sweeps.types import Turn, TurnState
from tracker.domain.verdicts.decision import MIN_COMMON


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """Paired difference of a benchmark's score from that of the first row, on the same questions."""

    delta: float
    """Positive is better, also for metrics of which lower is better."""
    low: float
    """95 % interval of the true difference, from pairs: much narrower than those of the two scores."""
    high: float
    questions: int
    """Number of questions with a score on both sides."""


@dataclass(frozen=True, kw_only=True)
class BoardScore:
    """One benchmark of one row."""

    benchmark: str
    mean: float | None
    """None: there is no score, for the reason in `failure`."""
    low: float | None = None
    """95 % interval over other questions like these; None: too few to estimate it."""
    high: float | None = None
    questions: int = 0
    """Number of questions with a score."""
    coverage: float = 0.0
    failure: str = ""
    change: ScoreDifference | None = None
    """None for the first row itself, and if the questions are not the same, as with another prompt."""

    @property
    def partly(self) -> str:
        """`97 % scored`; empty if almost all questions have a score."""
        return "" if self.coverage >= 0.995 else f"{percent_text(self.coverage)} scored"


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """One target with one variant of the settings."""

    target: str
    variant: tuple[tuple[str, str], ...]
    plan_id: str
    scores: tuple[BoardScore, ...]
    """In the order of the suite; () until evaluated."""
    mean: float | None
    """Unweighted mean over all benchmarks, of 1 - score if lower is better; None if one has no score."""

    def score_of(self, benchmark: str) -> BoardScore | None:
        """Return the score of a benchmark; None: not evaluated yet."""
        return next((score for score in self.scores if score.benchmark == benchmark), None)


@dataclass(frozen=True, kw_only=True)
class LoadCurve:
    """Latency of one target, by increasing load."""

    target: str
    probes: tuple[ProbeResult, ...]
    failures: tuple[ProbeFailure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LoadRow:
    """One load on one target."""

    target: str
    load: str
    requests_per_s: str = NOTHING
    tokens_per_s: str = NOTHING
    ttft: str = NOTHING
    tpot: str = NOTHING
    failed: str
    """Number of failed requests, or why nothing was timed."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """The results of one sweep run."""

    sweep: str
    due_at: datetime
    state: TurnState
    benchmarks: tuple[str, ...]
    rows: tuple[BoardRow, ...]
    curves: tuple[LoadCurve, ...]
    unanswered: int
    """Number of plans without a result."""
    first: str = ""
    """Plan ID of the row that the others are compared with: the first of the sweep, whatever its result."""
    note: str = ""


def board_of(turn: Turn, records: Mapping[str, EvalRecord]) -> Board:
    """Return the results of a sweep run; `records` have samples, those of other sweep runs are ignored."""
    scored = [plan for plan in turn.plans if plan.suite.benchmarks]
    # Not the best one: it is best partly by chance, so all others would seem worse than they are.
    first = scored[0].id if scored else ""
    rows: list[BoardRow] = []
    names: dict[str, None] = {}
    for plan in scored:
        rows.append(_row(plan, records.get(plan.id), records.get(first)))
        names |= dict.fromkeys(b.name for b in plan.suite.benchmarks)
    answered = [plan for plan in turn.plans if plan.id in records]
    return Board(
        sweep=turn.sweep,
        due_at=turn.due_at,
        state=turn.state,
        benchmarks=tuple(names),
        rows=tuple(sorted(rows, key=_rank)),
        curves=tuple(_curve(plan, records[plan.id]) for plan in answered if plan.loads),
        unanswered=len(turn.plans) - len(answered),
        first=first,
        note=turn.note,
    )


def missing_results(board: Board) -> int:
    """Return the number of plans, scores and latencies without a result."""
    scores = sum(1 for row in board.rows for score in row.scores if score.failure)
    return board.unanswered + scores + sum(len(curve.failures) for curve in board.curves)


def without_texts(record: EvalRecord) -> EvalRecord:
    """Return a record as stored for boards: with scores, without prompts, targets and answers."""
    outcomes = tuple(_without_texts(o) if isinstance(o, EvalResult) else o for o in record.outcomes)
    return replace(record, outcomes=outcomes)


def variant_text(variant: Iterable[tuple[str, str]]) -> str:
    """Return `temperature 0.7, prompt cot`, or `suite defaults` if nothing is varied."""
    return ", ".join(f"{axis} {value}" for axis, value in variant) or "suite defaults"


def load_size_text(load: ProbeLoad) -> str:
    """Return the size of a load."""
    if load.request_rate is None:
        return f"concurrency {load.concurrency}"
    return f"{load.request_rate:g} requests/s"


def load_rows(board: Board) -> tuple[LoadRow, ...]:
    """Return the loads on each target, as terminals and reports show them."""
    rows: list[LoadRow] = []
    for curve in board.curves:
        target = one_line(curve.target)
        for probe in curve.probes:
            rows.append(
                LoadRow(
                    target=target,
                    load=load_size_text(probe.load),
                    requests_per_s=f"{probe.requests_per_s:.2f}",
                    tokens_per_s=f"{probe.output_tokens_per_s:.1f}",
                    ttft=times_text(probe.ttft_ms),
                    tpot=times_text(probe.tpot_ms),
                    failed=str(probe.failed),
                )
            )
        for failure in curve.failures:
            rows.append(LoadRow(target=target, load=load_size_text(failure.load), failed=one_line(failure.message)))
    return tuple(rows)


def times_text(times: Percentiles | None) -> str:
    """Return median and 95th percentile in ms, such as `12.3 / 45.6`."""
    if times is None:
        return NOTHING
    return f"{times.p50:.1f} / {times.p95:.1f}"


def score_change_text(change: ScoreDifference) -> str:
    """Return the difference and its interval, each with its sign."""
    return f"{signed_text(change.delta)}, {signed_text(change.low)} to {signed_text(change.high)}"


def first_text(board: Board) -> str:
    """Return the name of the row that the others are compared with; empty if no difference is known."""
    if not any(score.change is not None for row in board.rows for score in row.scores):
        return ""
    row = next(row for row in board.rows if row.plan_id == board.first)
    if row.variant:
        return f"{row.target}, {variant_text(row.variant)}"
    return row.target


def _without_texts(result: EvalResult) -> EvalResult:
    bare = tuple(replace(s, prompt="", target="", answer="", detail="") for s in result.samples)
    return replace(result, samples=bare, has_texts=False)


def _row(plan: EvalPlan, record: EvalRecord | None, first: EvalRecord | None) -> BoardRow:
    target, variant = ("", ()) if plan.sweep is None else (plan.sweep.target, plan.sweep.variant)
    others = {} if first is None or first is record else {o.benchmark: o for o in first.outcomes}
    scores: list[BoardScore] = []
    known: list[float] = []
    for outcome in () if record is None else record.outcomes:
        score = _score(outcome)
        scores.append(replace(score, change=_change(outcome, others.get(outcome.benchmark))))
        up = _up(score, outcome)
        if up is not None:
            known.append(up)
    # A mean of fewer than all benchmarks is not comparable.
    mean = fmean(known) if known and len(known) == len(plan.suite.benchmarks) else None
    return BoardRow(target=target, variant=variant, plan_id=plan.id, scores=tuple(scores), mean=mean)


def _rank(row: BoardRow) -> tuple[bool, float, str, tuple[tuple[str, str], ...]]:
    return row.mean is None, 0.0 if row.mean is None else -row.mean, row.target, row.variant


def _up(score: BoardScore, outcome: Outcome) -> float | None:
    if score.mean is None or not isinstance(outcome, EvalResult):
        return None
    if outcome.higher_is_better:
        return score.mean
    return 1 - score.mean


def _score(outcome: Outcome) -> BoardScore:
    if not isinstance(outcome, EvalResult):
        return BoardScore(benchmark=outcome.benchmark, mean=None, failure=f"{outcome.code}: {outcome.message}")
    summary = summarise(outcome)
    values = np.array([one.score for one in sample_means(outcome).values()], dtype=np.float64)
    low, high = _interval(values, summary)
    return BoardScore(
        benchmark=outcome.benchmark,
        mean=summary.mean,
        low=low,
        high=high,
        questions=values.size,
        coverage=summary.coverage,
        failure="" if summary.mean is not None else "no sample has a score",
    )


def _change(outcome: Outcome, first: Outcome | None) -> ScoreDifference | None:
    if not isinstance(outcome, EvalResult) or not isinstance(first, EvalResult):
        return None
    # A sweep varies settings on purpose, so they may differ; the questions may not.
    pairing = pair(outcome, first)
    if not pairing.sample_ids or pairing.common_fraction < MIN_COMMON:
        return None
    test = paired_test(pairing.candidate, pairing.baseline, pairing.clusters)
    low, high = interval(test.spread)
    if _is_share(pairing.candidate) and _is_share(pairing.baseline):  # a difference of shares cannot be outside
        low, high = max(low, -1.0), min(high, 1.0)
    return ScoreDifference(delta=test.delta, low=low, high=high, questions=test.n)


def _is_share(values: FloatArray) -> bool:
    return bool(((values >= 0) & (values <= 1)).all())


def _interval(values: FloatArray, summary: ScoreSummary) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a mean: exact for 0/1 scores, else by t, robust to clusters."""
    groups, stderr, mean = summary.units or values.size, summary.stderr, summary.mean
    if mean is None or not values.size:
        return None, None
    if _is_counted(values, groups, stderr):
        return share_interval(mean * groups, groups)
    if not stderr:
        return None, None
    low, high = interval(Spread(centre=mean, stderr=stderr, df=groups - 1))
    # A mean of shares cannot be outside [0, 1], but a t interval can.
    if _is_share(values):
        return (max(low, 0.0), min(high, 1.0))
    return (low, high)


def _is_counted(values: FloatArray, groups: int, stderr: float | None) -> bool:
    """Return whether to use the exact interval of a share of correct answers."""
    if stderr == 0.0:  # scores that are all the same have no scatter, but their mean is still uncertain
        return _is_share(values)
    return groups == values.size and bool(np.isin(values, (0.0, 1.0)).all())


def _curve(plan: EvalPlan, record: EvalRecord) -> LoadCurve:
    timed = [p for p in record.probes if isinstance(p, ProbeResult) and p.completed]
    return LoadCurve(
        target="" if plan.sweep is None else plan.sweep.target,
        probes=tuple(sorted(timed, key=_load_rank)),
        failures=tuple(_failure(probe) for probe in record.probes if probe not in timed),
    )


def _load_rank(probe: ProbeResult) -> tuple[bool, float]:
    load = probe.load
    return load.request_rate is not None, load.request_rate or float(load.concurrency)


def _failure(probe: ProbeOutcome) -> ProbeFailure:
    if isinstance(probe, ProbeFailure):
        return probe
    return ProbeFailure(load=probe.load, code="", message=f"no request completed: {probe.first_error}", hint="")
