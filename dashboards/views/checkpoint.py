"""One checkpoint -> what its report says, ready to show. Pure.

view = build_checkpoint_view(data)        # `dashboards.page.html` turns it into HTML
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from dashboards.charts.latency_spread import LoadSpread, load_spreads
from dashboards.charts.run import INTERVAL, load_text
from dashboards.data.checkpoint import CheckpointData, best_comparison
from dashboards.views.advice import Advice, advice_text
from dashboards.views.changes import Changed, changes_of_views
from dashboards.views.episodes import LossRow, loss_rows
from dashboards.views.evidence import EvidenceView, evidence
from dashboards.views.findings import FindingRow, finding_rows
from dashboards.views.latency_verdicts import LatencyVerdicts, latency_verdicts
from dashboards.views.measured import MeasuredView, measured
from dashboards.views.run import interval_text
from dashboards.views.served import cost_facts, served_facts
from dashboards.views.tables import Badge, Trouble, badge, coverage_text, troubles
from tracker.domain.compare.view import ComparedBenchmark
from tracker.domain.overview.run import Overview, Standing, headline, overview, standings
from tracker.domain.records.display import NOTHING, count_text, one_line, score_text, signed_text, steps_text
from tracker.domain.records.types import Comparison, Verdict
from tracker.domain.verdicts.screening import mean_text

MAX_TILES = 12


@dataclass(frozen=True, kw_only=True)
class Held:
    """A score held against an earlier one."""

    score: str = ""
    where: str = ""
    change: str = ""
    interval: str = ""
    flips: str = ""
    why_not: str = ""
    """Why there is nothing to hold it against."""


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """One benchmark at this checkpoint."""

    benchmark: str
    badge: Badge
    score: str
    interval: str
    coverage: str
    """Share of samples with a score, where that is not all."""
    before: Held
    best: Held

    @property
    def note(self) -> str:
        """What stands below a tile's score."""
        if self.before.change:
            return f"{self.before.change} since {self.before.where}"
        return self.before.why_not

    @property
    def sure(self) -> str:
        """The interval of that change; empty where there is none."""
        return f"95 %: {self.before.interval}" if self.before.change else ""


@dataclass(frozen=True, kw_only=True)
class CheckpointView:
    """Everything that the page shows, in its order."""

    run_id: str
    step: int
    run_page: str
    headline: str
    titles: tuple[str, ...]
    facts: tuple[str, ...]
    scores: tuple[ScoreRow, ...]
    max_tiles: int
    advice: tuple[Advice, ...]
    """What to do about losses; nothing about those of a checkpoint that was left behind."""
    before_step: int | None
    findings: tuple[FindingRow, ...]
    episodes: tuple[LossRow, ...]
    evidence: tuple[EvidenceView, ...]
    changes: tuple[Changed, ...]
    spreads: tuple[LoadSpread, ...]
    loads: tuple[str, ...]
    latency_verdicts: LatencyVerdicts | None
    troubles: tuple[Trouble, ...]
    costs: tuple[tuple[str, str], ...]
    served: tuple[tuple[str, str], ...]
    measured: MeasuredView
    made_at: str


def build_checkpoint_view(data: CheckpointData) -> CheckpointView:
    """Arrange everything for the page."""
    view = overview(data.own.reports)
    found = standings(view)
    loads = {probe.load.name: probe.load for probe in data.record.probes}
    return CheckpointView(
        run_id=one_line(data.own.run_id),
        step=data.report.step,
        run_page=data.run_page,
        headline=headline(view),
        titles=data.titles,
        facts=tuple(_facts(data)),
        scores=tuple(_rows(data, found)),
        max_tiles=MAX_TILES,
        advice=advice_text(data.own.run_id, found, ()) if data.left_for is None else (),
        before_step=None if data.before is None else data.before.plan.checkpoint.step,
        findings=finding_rows(view),
        episodes=loss_rows(data.own.episodes, ()),
        evidence=evidence(view, found, data.own.repetitions),
        changes=changes_of_views(data.views, [one.benchmark for one in found]),
        spreads=load_spreads(data.record, data.before),
        loads=tuple(f"{one_line(name)}: {load_text(load)}" for name, load in loads.items()),
        latency_verdicts=latency_verdicts(data.own.reports),
        troubles=troubles(data.own.records, ()),
        costs=cost_facts(data.record),
        served=served_facts(data.record),
        measured=measured(data.own),
        made_at=f"{data.own.made_at:%Y-%m-%d %H:%M} UTC",
    )


# --- private


def _facts(data: CheckpointData) -> Iterator[str]:
    checkpoint = data.record.plan.checkpoint
    yield f"digest {checkpoint.digest[:12]}"
    yield f"saved {checkpoint.ready_at:%Y-%m-%d %H:%M} UTC"
    yield f"evaluated {data.record.finished_at:%Y-%m-%d %H:%M} UTC"
    yield count_text(len(data.report.verdicts), "benchmark")
    if data.left_for is not None:
        yield f"left behind when training went back to step {data.left_for}"


def _rows(data: CheckpointData, found: tuple[Standing, ...]) -> Iterator[ScoreRow]:
    verdicts = {verdict.benchmark: verdict for verdict in data.report.verdicts}
    compared = {one.benchmark: one for view in data.views[:1] for one in view.benchmarks}
    means = overview(data.means)
    refused = {one.benchmark: one.reasons for view in data.views[:1] for one in view.refused}
    for standing in found:
        verdict = verdicts[standing.benchmark]
        yield ScoreRow(
            benchmark=one_line(verdict.benchmark),
            badge=badge(verdict.word),
            score=mean_text(verdict),
            interval=interval_text(verdict),
            coverage=coverage_text(verdict),
            before=_before(data, compared.get(verdict.benchmark), refused.get(verdict.benchmark, ())),
            best=_best(verdict, means, data.report.step),
        )


def _before(data: CheckpointData, one: ComparedBenchmark | None, reasons: tuple[str, ...]) -> Held:
    if data.before is None:
        return Held(why_not="the first checkpoint")
    step = data.before.plan.checkpoint.step
    if one is None:
        return Held(where=steps_text((step,)), why_not=one_line("; ".join(reasons)) or NOTHING)
    error = "" if one.before.stderr is None else f" ± {score_text(INTERVAL * one.before.stderr)}"
    return _held(f"{score_text(one.before.mean)}{error}", steps_text((step,)), one.comparison)


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
