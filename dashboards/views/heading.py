"""The top of a page: a one-sentence finding, facts, advice, and a summary at a glance. Pure."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dashboards.data.run import Conclusions, RunData
from dashboards.views.conclusions import loss_rows
from tracker.domain.best.choice import CHAMPION
from tracker.domain.overview.run import Overview, Standing, headline
from tracker.domain.records.display import one_line
from tracker.domain.records.tracking import Champion
from tracker.domain.records.types import WORSE

AT_MOST = 4
"""Maximum incidents or alerts listed; more are only counted."""


Advice = tuple[str, str]
"""A recommended action, and the command for it."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The top of both pages."""

    run_id: str
    headline: str
    facts: tuple[str, ...]
    advice: tuple[Advice, ...]
    """What to do about losses; empty for a discarded checkpoint."""
    made_at: str


@dataclass(frozen=True, kw_only=True)
class GlanceRow:
    """One line of the summary at a glance."""

    name: str
    lines: tuple[str, ...]
    is_bad: bool


def heading(data: RunData, view: Overview, *, facts: Iterable[str], advice: tuple[Advice, ...]) -> Heading:
    """Return the top of a page."""
    return Heading(
        run_id=one_line(data.run_id),
        headline=headline(view),
        facts=tuple(facts),
        advice=advice,
        made_at=f"{data.made_at:%Y-%m-%d %H:%M} UTC",
    )


def advice_text(run_id: str, found: Sequence[Standing], champions: Iterable[Champion]) -> tuple[Advice, ...]:
    """Return what to do about the most urgent benchmark that is worse; empty if none is. `found`: most urgent first."""
    for standing in found:
        if standing.word in WORSE:
            return tuple(_advice(run_id, standing, _champion(champions)))
    return ()


def glance(known: Conclusions) -> tuple[GlanceRow, ...]:
    """Return the best checkpoint, open incidents and open alerts."""
    lasting = [f"{row.subject} since step {row.onset}" for row in loss_rows(known.incidents, ()) if row.lasts]
    alerts = [one_line(alert.message) for alert in known.alerts]
    return (
        GlanceRow(name="Best checkpoint", lines=_best(known), is_bad=False),
        GlanceRow(name="Open incidents", lines=_named(lasting), is_bad=bool(lasting)),
        GlanceRow(name="Open alerts", lines=_named(alerts), is_bad=bool(alerts)),
    )


def _champion(champions: Iterable[Champion]) -> Champion | None:
    return next((c for c in champions if c.alias == CHAMPION), None)


def _advice(run_id: str, worst: Standing, best: Champion | None) -> Iterator[Advice]:
    def at(step: int) -> str:
        return shlex.quote(f"{run_id}@{step}")

    if worst.best_steps:
        before, now = at(worst.best_steps[-1]), at(worst.step)
        yield "Show the changed samples with both answers:", f"tracker compare {before} {now}"
    if best is not None and best.checkpoint.step < worst.step:
        yield "Show the best checkpoint:", f"tracker report {at(best.checkpoint.step)}"
    accepted = f"tracker accept {at(worst.step)} {shlex.quote(worst.benchmark)} --reason WHY"
    yield "Accept this score level if it is intended:", accepted


def _best(known: Conclusions) -> tuple[str, ...]:
    champion = _champion(known.champions)
    if champion is None:
        return ("no checkpoint has a score for every benchmark",)
    return f"step {champion.checkpoint.step}", one_line(champion.reason)


def _named(found: list[str]) -> tuple[str, ...]:
    if len(found) > AT_MOST:
        return (*found[:AT_MOST], f"and {len(found) - AT_MOST} more")
    return tuple(found) or ("none",)
