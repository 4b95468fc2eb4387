"""The top of a page: a one-sentence finding, facts and advice. Pure."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dashboards.data.run import Conclusions, RunData
from tracker.domain.best.choice import CHAMPION
from tracker.domain.overview.run import Overview
from tracker.domain.overview.standings import Standing, headline
from tracker.domain.records.display import count_text, one_line
from tracker.domain.records.tracking import Champion
from tracker.domain.records.types import WORSE

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


def standing_facts(known: Conclusions) -> Iterator[str]:
    """Yield the best checkpoint and why it is that, or why there is none, and the number of open alerts."""
    champion = _champion(known.champions)
    if champion is not None:
        yield f"best checkpoint: step {champion.checkpoint.step} ({one_line(champion.reason)})"
    elif known.reports:
        yield "no best checkpoint: none without a loss has a score for every benchmark"
    if known.alerts:
        yield count_text(len(known.alerts), "open alert")


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
