"""The forgetting ledger as the report shows it: rows of text, a heatmap, lost samples. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.charts.heatmap import HeatRow, heat_rows
from dashboards.views.samples.texts import LostSampleView, lost_sample
from tracker.domain.forgetting.levels import Forgetting
from tracker.domain.forgetting.types import BenchmarkLedger, LedgerRow, RunLedger
from tracker.domain.forgetting.wording import (
    chance_text,
    newest_text,
    notes,
    transfer_sentences,
)
from tracker.domain.records import display

LOST_SAMPLES = 3
"""Lost samples of each benchmark that are shown with their texts."""
MAX_SHOWN = 8
"""Maximum benchmarks whose lost samples are shown."""


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One line of the ledger: a benchmark or a subset."""

    name: str
    samples: str
    best: str = display.NOTHING
    best_at: str = ""
    now: str
    change: str = display.NOTHING
    interval: str = ""
    p: str = display.NOTHING
    kept: str = display.NOTHING
    lost: str = display.NOTHING
    by_chance: str = ""
    lost_now: str = display.NOTHING
    """Number lost at the newest checkpoint alone."""
    lowest: str = display.NOTHING
    lowest_by_chance: str = ""
    raw: str = display.NOTHING
    raw_by_chance: str = ""


@dataclass(frozen=True, kw_only=True)
class LostSamples:
    """The lost samples of one benchmark."""

    benchmark: str
    lost: str
    now: str
    """Number lost at the newest checkpoint alone."""
    by_chance: str
    before: str
    after: str
    before_step: int
    after_step: int
    changes: str
    """Numbers of changes along the run at which a sample was learned, forgotten or relearned."""
    samples: tuple[LostSampleView, ...]
    more: int


@dataclass(frozen=True, kw_only=True)
class LedgerView:
    """The forgetting section of the report."""

    heat: tuple[HeatRow, ...]
    first_step: int
    last_step: int
    entries: tuple[LedgerEntry, ...]
    subsets: tuple[tuple[str, tuple[LedgerEntry, ...]], ...]
    """Each benchmark that has subsets, with those."""
    transfers: tuple[str, ...]
    notes: tuple[str, ...]
    benchmarks: tuple[LostSamples, ...]


def ledger_view(ledger: RunLedger | None) -> LedgerView | None:
    """Return the section for a ledger; None if there is no ledger or nothing was scored."""
    if ledger is None or not ledger.steps:
        return None
    entries: list[LedgerEntry] = []
    subsets: list[tuple[str, tuple[LedgerEntry, ...]]] = []
    found: list[str] = []
    for one in ledger.benchmarks:
        entries.append(_entry(display.one_line(one.benchmark), one.whole))
        if one.subsets:
            rows = tuple(_entry(display.one_line(row.subset), row) for row in one.subsets)
            subsets.append((display.one_line(one.benchmark), rows))
        found += notes(one)
    return LedgerView(
        heat=heat_rows(ledger),
        first_step=ledger.steps[0],
        last_step=ledger.steps[-1],
        entries=tuple(entries),
        subsets=tuple(subsets),
        transfers=transfer_sentences(ledger),
        notes=tuple(found),
        benchmarks=tuple(_lost_samples(ledger))[:MAX_SHOWN],
    )


def _entry(name: str, row: LedgerRow) -> LedgerEntry:
    found = row.forgetting
    newest = next((mean for mean in reversed(row.means) if mean is not None), None)
    return LedgerEntry(
        name=name,
        samples=display.count_text(row.samples, "sample"),
        now=display.score_text(found.last.mean if found else newest),
        **(_levels(found) if found else {}),
        **_flow(row),
    )


def _levels(found: Forgetting) -> dict[str, str]:
    fell = found.dip.depth > 0
    return {
        "best": display.score_text(found.peak.mean),
        "best_at": display.steps_text((found.peak.first_step, found.peak.last_step)),
        "change": display.signed_text(-found.forgetting),
        "interval": f"{display.signed_text(-found.ci_high)} to {display.signed_text(-found.ci_low)}",
        "p": display.p_text(found.p_value),
        "kept": display.NOTHING if found.retention is None else display.percent_text(found.retention),
        "lowest": f"{display.signed_text(-found.dip.depth)} at {found.dip.step}" if fell else display.NOTHING,
        "lowest_by_chance": f"{display.signed_text(-found.dip.by_chance)} by chance" if fell else "",
        "raw": display.signed_text(-found.raw),
        "raw_by_chance": f"{display.signed_text(-found.raw_by_chance)} by chance",
    }


def _flow(row: LedgerRow) -> dict[str, str]:
    found = {} if row.newest is None else {"lost_now": str(row.newest.lost)}
    if row.flow is not None:
        found["lost"] = f"{row.flow.lost} / {row.flow.gained}"
        found["by_chance"] = f"{chance_text(row.flow.expected_false)} by chance"
    return found


def _lost_samples(ledger: RunLedger) -> Iterator[LostSamples]:
    for one in ledger.benchmarks:
        window, flow = one.window, one.whole.flow
        if window is None or flow is None or not one.details:
            continue
        before, after = window.before_steps[-1], window.after_steps[-1]
        yield LostSamples(
            benchmark=display.one_line(one.benchmark),
            lost=f"{flow.lost} of {display.count_text(one.whole.samples, 'sample')}",
            now=newest_text(one.whole),
            by_chance=chance_text(flow.expected_false),
            before=display.steps_text(window.before_steps),
            after=display.steps_text(window.after_steps),
            before_step=before,
            after_step=after,
            changes=_changes(one),
            samples=tuple(
                lost_sample((x.sample_id, x.subset), x.texts, x.right, one.steps, (before, after)) for x in one.details
            ),
            more=flow.lost - len(one.details),
        )


def _changes(benchmark: BenchmarkLedger) -> str:
    learned = sum(event.learned for event in benchmark.events)
    forgotten = sum(event.forgotten for event in benchmark.events)
    relearned = sum(event.relearned for event in benchmark.events)
    return f"{learned} learned, {forgotten} forgotten, {relearned} relearned"
