"""A run's records -> what its report says, ready to show. Pure: data in, texts, rows and figures out.

view = build_view(data)        # `dashboards.page.html` turns it into HTML
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from dashboards.charts.figures import Figure
from dashboards.charts.run import INTERVAL, latency_figures, load_text, score_figures
from dashboards.data.run import RunData
from dashboards.views.advice import Advice, advice_text
from dashboards.views.episodes import LossRow, loss_rows
from dashboards.views.evidence import EvidenceView, evidence
from dashboards.views.findings import FindingRow, finding_rows
from dashboards.views.glance import GlanceRow, glance
from dashboards.views.latency_verdicts import LatencyVerdicts, latency_verdicts
from dashboards.views.ledger import LedgerView, ledger_view
from dashboards.views.lost import Loss, losses_of
from dashboards.views.measured import MeasuredView, measured
from dashboards.views.sweeps import SweepView, sweep_views
from dashboards.views.tables import (
    Badge,
    CostRow,
    LatencyRow,
    Trouble,
    VerdictTable,
    badge,
    cost_rows,
    latency_rows,
    troubles,
    verdict_table,
)
from eval_jobs.types import BenchmarkFailure
from tracker.domain.calibration.repetition_text import is_unfit, unfit_text
from tracker.domain.overview.costs import cost_text
from tracker.domain.overview.run import WORSE, Overview, Standing, decisive_comparison, headline, overview, standings
from tracker.domain.records.display import baseline_text, count_text, one_line, score_text, signed_text, steps_text
from tracker.domain.records.types import Baseline, Comparison, Verdict, VerdictWord
from tracker.domain.verdicts.screening import mean_text, savings_of, savings_text

MAX_TILES = 12
_DOUBTED = frozenset({*WORSE, VerdictWord.SUSPECT})


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Where one benchmark stands."""

    benchmark: str
    badge: Badge
    score: str
    interval: str
    """Behind the score; empty where it is not known."""
    note: str
    sure: str
    """Worse, or perhaps: the difference with its 95 % interval."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    """Everything that the page shows, in its order."""

    run_id: str
    headline: str
    facts: tuple[str, ...]
    glance: tuple[GlanceRow, ...]
    tiles: tuple[Tile, ...]
    more_tiles: int
    advice: tuple[Advice, ...]
    """What to do about losses."""
    score_figures: tuple[Figure, ...]
    phases: tuple[str, ...]
    table: VerdictTable
    findings: tuple[FindingRow, ...]
    episodes: tuple[LossRow, ...]
    evidence: tuple[EvidenceView, ...]
    losses: tuple[Loss, ...]
    untold: tuple[Loss, ...]
    """Those of them that are too fresh for the ledger to show samples of."""
    ledger: LedgerView | None
    latency_figures: tuple[Figure, ...]
    loads: tuple[str, ...]
    latency: tuple[LatencyRow, ...]
    latency_verdicts: LatencyVerdicts | None
    sweeps: tuple[SweepView, ...]
    troubles: tuple[Trouble, ...]
    measured: MeasuredView
    costs: tuple[CostRow, ...]
    cost_total: str
    pages: Mapping[int, str]
    """File names of the checkpoints' own pages, by step."""
    made_at: str


def build_view(data: RunData) -> RunView:
    """Arrange everything for the page."""
    view = overview(data.reports, data.gaps)
    found = standings(view)
    losses, ledger = losses_of(data, view), ledger_view(data.ledger)
    told = {one.benchmark for one in ledger.told} if ledger else set()
    loads = {probe.load.name: probe.load for record in data.records for probe in record.probes}
    return RunView(
        run_id=one_line(data.run_id),
        headline=headline(view),
        facts=_facts(data, view),
        glance=glance(data),
        tiles=tuple(_tile(view, standing) for standing in found[:MAX_TILES]),
        more_tiles=max(0, len(found) - MAX_TILES),
        advice=advice_text(data.run_id, found, data.champions),
        score_figures=score_figures(data, view),
        phases=tuple(f"{one_line(p.name)} from step {p.from_step}" for p in data.phases),
        table=verdict_table(view, found),
        findings=finding_rows(view),
        episodes=loss_rows(data.episodes, data.acceptances),
        evidence=evidence(view, found, data.repetitions),
        losses=losses,
        untold=tuple(loss for loss in losses if loss.benchmark not in told),
        ledger=ledger,
        latency_figures=latency_figures(data, view),
        loads=tuple(f"{one_line(name)}: {load_text(load)}" for name, load in loads.items()),
        latency=latency_rows(data.records),
        latency_verdicts=latency_verdicts(data.reports),
        sweeps=sweep_views(data.boards),
        troubles=troubles(data.records, data.gaps),
        measured=measured(data),
        costs=cost_rows(data.costs),
        cost_total="" if data.costs is None else cost_text(data.costs.total),
        pages=data.pages,
        made_at=f"{data.made_at:%Y-%m-%d %H:%M} UTC",
    )


def interval_text(verdict: Verdict) -> str:
    """Return what stands behind a score; empty where there is none or its error is not known."""
    if verdict.stderr is None or verdict.score is None or verdict.word is VerdictWord.MISSING:
        return ""
    return f"± {score_text(INTERVAL * verdict.stderr)}"


def difference_text(found: Comparison) -> str:
    """Return a difference with its interval."""
    return f"{signed_text(found.delta)}, 95 %: {signed_text(found.ci_low)} to {signed_text(found.ci_high)}"


# --- private


def _left(view: Overview) -> Iterator[str]:
    """Yield what training left behind, once for each time it went back."""
    for end in dict.fromkeys(end for _, end in view.left):
        steps = sorted(c.step for c, went_to in view.left if went_to == end)
        names = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
        yield f"{names} left behind when training went back to step {end}"


def _facts(data: RunData, view: Overview) -> tuple[str, ...]:
    missing = sum(isinstance(o, BenchmarkFailure) for r in data.records for o in r.outcomes)
    facts = [f"{count_text(len(view.steps), 'checkpoint')} evaluated{_range(view)}"]
    facts.append(count_text(len(view.benchmarks), "benchmark"))
    if view.gaps:
        facts.append(f"{count_text(len(view.gaps), 'checkpoint')} not evaluated")
    if missing:
        facts.append(f"{count_text(missing, 'result')} missing")
    if data.unfinished:
        facts.append(f"{count_text(data.unfinished, 'evaluation')} still to come")
    facts += [one_line(unfit_text(one)) for one in data.repetitions.values() if is_unfit(one)]
    facts += _left(view)
    savings = savings_of(view.verdicts.values())
    if savings is not None:
        facts.append(savings_text(savings))
    return tuple(facts)


def _range(view: Overview) -> str:
    if not view.steps:
        return ""
    first, last = view.steps[0], view.steps[-1]
    return f", step {first}" if first == last else f", steps {first} to {last}"


def _tile(view: Overview, standing: Standing) -> Tile:
    verdicts = dict(view.of(standing.benchmark))
    newest = verdicts[standing.step]
    doubted = decisive_comparison(newest) if newest.word in _DOUBTED else None
    return Tile(
        benchmark=one_line(standing.benchmark),
        badge=badge(standing.word),
        score=mean_text(newest),
        interval=interval_text(newest),
        note=_note(standing, verdicts, doubted),
        sure="" if doubted is None else difference_text(doubted),
    )


def _note(standing: Standing, verdicts: Mapping[int, Verdict], doubted: Comparison | None) -> str:
    """Say what the newest score is to be held against: the checkpoints it fell from, else the first one."""
    if standing.word is VerdictWord.MISSING:
        return f"no result at step {standing.step}"
    part = verdicts[standing.step].screened
    if part is not None:
        return f"{part.asked} of {part.asked + part.left_out} samples were asked"
    if doubted is not None and doubted.baseline is Baseline.PINNED:
        return f"against {one_line(baseline_text(doubted.baseline, doubted.baseline_steps))}"
    before = _whole_scores(verdicts, standing.step)
    best = sorted(before)[:1]
    if doubted is not None and doubted.baseline_steps:
        best = list(doubted.baseline_steps)
    steps = [step for step in best if step in before]
    if not steps:
        return f"first result, step {standing.step}"
    return f"was {score_text(fmean(before[step] for step in steps))} at {steps_text(steps)}"


def _whole_scores(verdicts: Mapping[int, Verdict], before: int) -> dict[int, float]:
    """Return the scores of steps before one at which all samples were asked."""
    scores: dict[int, float] = {}
    for step, verdict in verdicts.items():
        if step < before and verdict.score is not None and verdict.screened is None:
            scores[step] = verdict.score
    return scores
