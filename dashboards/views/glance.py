"""What a person should know who opens the report of a run and reads nothing else: (name, lines) pairs. Pure.

rows = glance(data)      # best checkpoint, losses that last, alerts that are open
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dashboards.data.run import RunData
from dashboards.views.episodes import loss_rows
from tracker.domain.best.champions import CHAMPION
from tracker.domain.records.display import count_text, one_line

AT_MOST = 4
"""Losses or alerts that are named; of more, how many more there are."""


@dataclass(frozen=True, kw_only=True)
class GlanceRow:
    """One thing to know."""

    name: str
    lines: tuple[str, ...]
    is_bad: bool


def glance(data: RunData) -> tuple[GlanceRow, ...]:
    """Return the best checkpoint, what is lost and lasts, and the alerts that are open."""
    losses = [row for row in loss_rows(data.episodes, ()) if row.lasts]
    return (
        GlanceRow(name="Best checkpoint", lines=tuple(_best(data)), is_bad=False),
        GlanceRow(
            name="Losses that last",
            lines=_named([f"{row.subject}, since step {row.onset}" for row in losses]),
            is_bad=bool(losses),
        ),
        GlanceRow(
            name="Open alerts",
            lines=_named([one_line(alert.message) for alert in data.alerts]),
            is_bad=bool(data.alerts),
        ),
    )


# --- private


def _best(data: RunData) -> Iterator[str]:
    champion = next((c for c in data.champions if c.alias == CHAMPION), None)
    if champion is None:
        yield "no checkpoint has scored answers of every benchmark"
        return
    yield f"step {champion.checkpoint.step}"
    yield one_line(champion.reason)


def _named(found: list[str]) -> tuple[str, ...]:
    if not found:
        return ("none",)
    more = len(found) - AT_MOST
    return (*found[:AT_MOST], *([f"and {count_text(more, 'other')}"] if more > 0 else ()))
