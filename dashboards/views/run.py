"""Data of a run -> contents of its report: texts, rows and figures. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from dashboards.charts.figures import Figure
from dashboards.charts.run import latency_figures, load_texts, margin_text, score_figures
from dashboards.data.run import RunData
from dashboards.views import tables
from dashboards.views.conclusions import ConclusionsView, finding_rows, log_rows, loss_rows
from dashboards.views.evidence import evidence, noise_views
from dashboards.views.heading import Heading, advice_text, heading, standing_facts
from dashboards.views.latency_verdicts import LatencyVerdicts, latency_verdicts
from dashboards.views.ledger import LedgerView, ledger_view
from dashboards.views.measured import MeasuredView, asked_texts, measured
from dashboards.views.samples.packed import PageSamples, packed_samples
from dashboards.views.samples.pairs import changed_pairs
from dashboards.views.sweeps import SweepView, sweep_views
from dashboards.views.training import TrainingView, training_view
from eval_jobs.types import BenchmarkFailure
from tracker.domain.calibration.repetition_text import is_unfit, unfit_text
from tracker.domain.overview.run import Overview, overview
from tracker.domain.overview.standings import Standing, decisive_comparison, standings
from tracker.domain.records.alerts import baseline_text
from tracker.domain.records.display import count_text, evaluated_text, one_line, score_text, steps_text
from tracker.domain.records.loss_text import drop_baseline_text
from tracker.domain.records.types import WORSE, Baseline, Verdict, VerdictWord
from tracker.domain.verdicts.screening import mean_text, savings_text

_DOUBTED = frozenset({*WORSE, VerdictWord.SUSPECT})


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Newest state of one benchmark."""

    benchmark: str
    word: VerdictWord
    score: str
    interval: str
    """Interval of the score; empty if unknown."""
    note: str
    """What the score is compared with; with an open loss, its baseline."""


@dataclass(frozen=True, kw_only=True)
class CurvesView:
    """Scores and training loss by step."""

    figures: tuple[Figure, ...]
    phases: tuple[str, ...]
    training: TrainingView | None
    """What the logs of the training say; None: none was read."""


@dataclass(frozen=True, kw_only=True)
class ForgettingView:
    """Forgetting ledger, and changed samples."""

    ledger: LedgerView | None
    samples: PageSamples | None
    """All samples that changed since the checkpoints that the newest verdicts are shown against."""


@dataclass(frozen=True, kw_only=True)
class LatencyView:
    """Latency by step."""

    figures: tuple[Figure, ...]
    loads: tuple[str, ...]
    rows: tuple[tables.LatencyRow, ...]
    verdicts: LatencyVerdicts | None


@dataclass(frozen=True, kw_only=True)
class RunView:
    """Contents of the page, in its order."""

    heading: Heading
    tiles: tuple[Tile, ...]
    curves: CurvesView
    table: tables.VerdictTable
    conclusions: ConclusionsView
    forgetting: ForgettingView
    latency: LatencyView
    sweeps: tuple[SweepView, ...]
    costs: tables.CostTable | None
    troubles: tuple[tables.Trouble, ...]
    measured: MeasuredView


def build_view(data: RunData, pages: Mapping[int, str] = MappingProxyType({})) -> RunView:
    """Return the contents of the page; `pages` are the checkpoint pages in the same folder, by step."""
    known = data.conclusions
    view = overview(known.reports, known.gaps)
    found = standings(view)
    advice = advice_text(data.run_id, found, known.champions)
    return RunView(
        heading=heading(data, view, facts=_facts(data, view), advice=advice),
        tiles=tuple(_tile(view, standing) for standing in found),
        curves=CurvesView(
            figures=score_figures(data, view),
            phases=tuple(f"{one_line(phase.name)} from step {phase.from_step}" for phase in data.training.marks),
            training=training_view(data.training),
        ),
        table=tables.verdict_table(view, found, pages),
        conclusions=ConclusionsView(
            findings=finding_rows(view, known.incidents),
            incidents=loss_rows(known),
            evidence=evidence(view, found, data.repetitions),
            noise=noise_views(view),
            log=log_rows(known.log),
        ),
        forgetting=_forgetting(data, view),
        latency=LatencyView(
            figures=latency_figures(data, view),
            loads=load_texts(data.records),
            rows=tables.latency_rows(data.records),
            verdicts=latency_verdicts(known.reports),
        ),
        sweeps=sweep_views(data.boards),
        costs=tables.cost_table(data.costs),
        troubles=tables.troubles(data.records, known.gaps),
        measured=measured(data),
    )


def interval_text(verdict: Verdict) -> str:
    """Return the 95 % interval of a score; empty without a standard error, and if `mean_text` has it already."""
    if verdict.score is None or verdict.word is VerdictWord.MISSING or verdict.screened is not None:
        return ""
    return margin_text(verdict.score, verdict.stderr, verdict.units)


def _facts(data: RunData, view: Overview) -> Iterator[str]:
    span = f", {steps_text(view.steps)}" if view.steps else ""
    scored = len({step for (step, _), verdict in view.verdicts.items() if verdict.score is not None})
    yield f"{evaluated_text(scored, len(view.steps) - scored)}{span}"
    yield count_text(len(view.benchmarks), "benchmark")
    yield from standing_facts(data.conclusions)
    if view.gaps:
        yield f"{count_text(sum(gap.count for gap in view.gaps), 'checkpoint')} not evaluated"
    missing = sum(isinstance(outcome, BenchmarkFailure) for record in data.records for outcome in record.outcomes)
    if missing:
        yield f"{count_text(missing, 'result')} missing"
    if data.unfinished:
        yield f"{count_text(data.unfinished, 'evaluation')} pending"
    for one in filter(is_unfit, data.repetitions.values()):
        yield one_line(unfit_text(one))
    yield from _left(view)
    if savings := savings_text(view.verdicts.values()):
        yield savings


def _left(view: Overview) -> Iterator[str]:
    """Yield one text for each training restart, with the checkpoints that it discarded."""
    by_end: dict[int, list[int]] = {}
    for checkpoint, end in view.left:
        by_end.setdefault(end, []).append(checkpoint.step)
    for end, steps in by_end.items():
        yield f"{steps_text(steps)} discarded when training restarted from a step before {end}"


def _forgetting(data: RunData, view: Overview) -> ForgettingView:
    settings = {name: text for record in data.records for name, text in asked_texts(record).items()}
    return ForgettingView(
        ledger=ledger_view(data.ledger),
        samples=packed_samples(changed_pairs(data, view), settings),
    )


def _tile(view: Overview, standing: Standing) -> Tile:
    verdicts = dict(view.of(standing.benchmark))
    newest = verdicts[standing.step]
    return Tile(
        benchmark=one_line(standing.benchmark),
        word=standing.word,
        score=mean_text(newest),
        interval=interval_text(newest),
        note=_note(standing, verdicts),
    )


def _note(standing: Standing, verdicts: Mapping[int, Verdict]) -> str:
    """Return what the newest score is compared with: the checkpoints it fell from, else the first score."""
    newest = verdicts[standing.step]
    if standing.word is VerdictWord.MISSING:
        return f"no result at step {standing.step}"
    part = newest.screened
    if part is not None:
        return f"screened on {part.asked} of {part.asked + part.left_out} samples"
    if drop := newest.open_drop:
        return f"was {score_text(drop.before)} at {drop_baseline_text(drop)}"
    if standing.is_accepted:
        return "first since its level was accepted"
    return _compared(newest, verdicts, standing.step)


def _compared(newest: Verdict, verdicts: Mapping[int, Verdict], step: int) -> str:
    before = _whole_scores(verdicts, step)
    doubted = decisive_comparison(newest) if newest.word in _DOUBTED else None
    if doubted is not None and doubted.baseline is Baseline.PINNED:
        return f"vs. {one_line(baseline_text(doubted.baseline, doubted.baseline_steps))}"
    compared = sorted(before)[:1] if doubted is None else doubted.baseline_steps
    return _was(before, compared, step)


def _was(scores: Mapping[int, float], wanted: Sequence[int], step: int) -> str:
    steps = [step for step in wanted if step in scores]
    if not steps:
        return f"first result at step {step}"
    return f"was {score_text(fmean(scores[step] for step in steps))} at {steps_text(steps)}"


def _whole_scores(verdicts: Mapping[int, Verdict], before: int) -> dict[int, float]:
    """Return the scores before a step, without those of screened checkpoints."""
    scores: dict[int, float] = {}
    for step, verdict in verdicts.items():
        if step < before and verdict.score is not None and verdict.screened is None:
            scores[step] = verdict.score
    return scores
