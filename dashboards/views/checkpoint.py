"""Data of one checkpoint -> contents of its report. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from dashboards.charts.latency_spread import LoadSpread, load_spreads
from dashboards.charts.run import load_texts, margin_text
from dashboards.data.checkpoint import CheckpointData, best_comparison
from dashboards.views.conclusions import ConclusionsView, finding_rows, loss_rows
from dashboards.views.evidence import evidence, noise_views
from dashboards.views.heading import Heading, advice_text, heading
from dashboards.views.latency_verdicts import LatencyVerdicts, latency_verdicts
from dashboards.views.measured import MeasuredView, asked_texts, measured
from dashboards.views.run import interval_text
from dashboards.views.samples.changes import Changed, changed_samples, pairs_of
from dashboards.views.samples.packed import PageSamples, packed_samples
from dashboards.views.served import ServedView, served
from dashboards.views.tables import Trouble, coverage_text, troubles
from dashboards.views.training import since_last_text
from tracker.domain.compare.view import ComparedBenchmark
from tracker.domain.overview.run import Overview, overview
from tracker.domain.overview.standings import Standing, standings
from tracker.domain.records.display import NOTHING, count_text, one_line, score_text, signed_text, steps_text
from tracker.domain.records.types import Comparison, Verdict, VerdictWord
from tracker.domain.verdicts.screening import mean_text


@dataclass(frozen=True, kw_only=True)
class Held:
    """An earlier score, and the change since."""

    score: str = ""
    where: str = ""
    change: str = ""
    interval: str = ""
    flips: str = ""
    why_not: str = ""
    """Why there is no comparison."""


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One benchmark at this checkpoint."""

    benchmark: str
    word: VerdictWord
    score: str
    interval: str
    coverage: str
    """Share of samples with a score; empty if all have one."""
    before: Held
    best: Held

    @property
    def note(self) -> str:
        """Text below a tile's score."""
        if self.before.change:
            return f"{self.before.change} vs. {self.before.where}"
        return self.before.why_not


@dataclass(frozen=True, kw_only=True)
class SpreadsView:
    """Distributions of request times, and latency verdicts."""

    spreads: tuple[LoadSpread, ...]
    loads: tuple[str, ...]
    verdicts: LatencyVerdicts | None


@dataclass(frozen=True, kw_only=True)
class ChangesView:
    """Lost and gained samples."""

    listed: tuple[Changed, ...]
    """The first ones of each benchmark."""
    packed: PageSamples | None
    """All."""


@dataclass(frozen=True, kw_only=True)
class CheckpointView:
    """Contents of the page, in its order."""

    heading: Heading
    step: int
    titles: tuple[str, ...]
    run_page: str
    scores: tuple[ScoreRow, ...]
    before_step: int | None
    conclusions: ConclusionsView
    changes: ChangesView
    latency: SpreadsView
    served: ServedView
    troubles: tuple[Trouble, ...]
    measured: MeasuredView


def build_checkpoint_view(data: CheckpointData) -> CheckpointView:
    """Return the contents of the page."""
    own, reports = data.own, data.own.conclusions.reports
    view = overview(reports)
    found = standings(view)
    advice = advice_text(own.run_id, found, ()) if data.left_for is None else ()
    pairs = pairs_of(data.views, [one.benchmark for one in found])
    return CheckpointView(
        heading=heading(own, view, facts=_facts(data), advice=advice),
        step=data.report.step,
        titles=data.titles,
        run_page=data.run_page,
        scores=tuple(_rows(data, found)),
        before_step=None if data.before is None else data.before.plan.checkpoint.step,
        conclusions=ConclusionsView(
            findings=finding_rows(view, own.conclusions.incidents),
            incidents=loss_rows(own.conclusions),
            evidence=evidence(view, found, own.repetitions),
            noise=noise_views(view),
        ),
        changes=ChangesView(
            listed=tuple(map(changed_samples, pairs)), packed=packed_samples(pairs, asked_texts(data.record))
        ),
        latency=SpreadsView(
            spreads=load_spreads(data.record, data.before),
            loads=load_texts(own.records),
            verdicts=latency_verdicts(reports),
        ),
        served=served(data.record),
        troubles=troubles(own.records, ()),
        measured=measured(own),
    )


def _facts(data: CheckpointData) -> Iterator[str]:
    checkpoint = data.record.plan.checkpoint
    yield f"digest {checkpoint.digest[:12]}"
    yield f"saved {checkpoint.ready_at:%Y-%m-%d %H:%M} UTC"
    yield f"evaluated {data.record.finished_at:%Y-%m-%d %H:%M} UTC"
    yield count_text(len(data.report.verdicts), "benchmark")
    if data.left_for is not None:
        yield f"discarded when training restarted from a step before {data.left_for}"
    for text in since_last_text(data.own.training, checkpoint.step):
        yield f"since the last checkpoint: {text}"


def _rows(data: CheckpointData, found: tuple[Standing, ...]) -> Iterator[ScoreRow]:
    verdicts = {verdict.benchmark: verdict for verdict in data.report.verdicts}
    means = overview(data.means)
    for standing in found:
        verdict = verdicts[standing.benchmark]
        yield ScoreRow(
            benchmark=one_line(verdict.benchmark),
            word=verdict.word,
            score=mean_text(verdict),
            interval=interval_text(verdict),
            coverage=coverage_text(verdict),
            before=_before(data, verdict.benchmark),
            best=_best(verdict, means, data.report.step),
        )


def _before(data: CheckpointData, benchmark: str) -> Held:
    if data.before is None:
        return Held(why_not="first checkpoint")
    where = steps_text((data.before.plan.checkpoint.step,))
    for view in data.views[:1]:
        for one in view.benchmarks:
            if one.benchmark == benchmark:
                return _held(_mean_before(one), where, one.comparison)
        for refused in view.refused:
            if refused.benchmark == benchmark:
                return Held(where=where, why_not=one_line("; ".join(refused.reasons)) or NOTHING)
    return Held(where=where, why_not=NOTHING)


def _mean_before(one: ComparedBenchmark) -> str:
    known = one.before
    error = "" if known.mean is None else margin_text(known.mean, known.stderr, known.units)
    return f"{score_text(known.mean)} {error}".rstrip()


def _best(verdict: Verdict, means: Overview, step: int) -> Held:
    found = best_comparison(verdict, step)
    if found is None:
        return Held(why_not=NOTHING)
    there = (means.at(at, verdict.benchmark) for at in found.baseline_steps)
    known = [v.score for v in there if v is not None and v.score is not None and v.screened is None]
    return _held(score_text(fmean(known)) if known else NOTHING, steps_text(found.baseline_steps), found)


def _held(score: str, where: str, comparison: Comparison) -> Held:
    return Held(
        score=score,
        where=where,
        change=signed_text(comparison.delta),
        interval=f"{signed_text(comparison.ci_low)} to {signed_text(comparison.ci_high)}",
        flips=f"{comparison.n_lost} lost, {comparison.n_gained} gained of {comparison.n_common}",
    )
