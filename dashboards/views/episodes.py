"""Losses over time: when each began, where it was found, how it ended. Pure.

rows = loss_rows(data.episodes, data.acceptances)     # what lasts first, then the newest first
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dashboards.views.tables import Badge, badge
from tracker.domain.records.display import one_line, subject_text
from tracker.domain.records.types import Acceptance, Closing, Episode, VerdictWord


@dataclass(frozen=True, kw_only=True)
class LossRow:
    """One loss, or a level that was accepted without one."""

    subject: str
    badge: Badge | None
    """None: no loss was known when the level was accepted."""
    onset: int
    opened: int | None
    """Step of the checkpoint that showed it; None: nothing did."""
    lasts: bool
    ended: str


def loss_rows(episodes: Iterable[Episode], acceptances: Iterable[Acceptance]) -> tuple[LossRow, ...]:
    """Return every loss and every accepted level of a run."""
    by_place: dict[tuple[str, int | None], Acceptance] = {(a.benchmark, a.step): a for a in acceptances}
    losses = tuple(episodes)
    covered = {(e.benchmark, e.closed_step) for e in losses if e.closed_by is Closing.ACCEPTED}
    rows = [_of_episode(episode, by_place) for episode in losses]
    rows += [_of_level(accepted) for place, accepted in by_place.items() if place not in covered]
    return tuple(sorted(rows, key=lambda row: (not row.lasts, -row.onset, row.subject)))


# --- private


def _of_episode(episode: Episode, accepted: Mapping[tuple[str, int | None], Acceptance]) -> LossRow:
    return LossRow(
        subject=one_line(subject_text(episode.benchmark, episode.subset, episode.measure)),
        badge=badge(VerdictWord.FORGOTTEN if episode.forgotten else VerdictWord.REGRESSED),
        onset=episode.onset_step,
        opened=episode.opened_step,
        lasts=episode.closed_step is None,
        ended=_end(episode, accepted.get((episode.benchmark, episode.closed_step))),
    )


def _end(episode: Episode, acceptance: Acceptance | None) -> str:
    if episode.closed_step is None:
        return "lasts"
    if episode.closed_by is Closing.ACCEPTED:
        return f"accepted at step {episode.closed_step}" if acceptance is None else _accepted(acceptance)
    if episode.closed_by is Closing.SUPERSEDED:
        return f"left behind when training went back to step {episode.closed_step}"
    below = "" if episode.last_step is None else f", below until step {episode.last_step}"
    return f"recovered at step {episode.closed_step}{below}"


def _of_level(acceptance: Acceptance) -> LossRow:
    return LossRow(
        subject=one_line(acceptance.benchmark),
        badge=None,
        onset=acceptance.from_step,
        opened=None,
        lasts=False,
        ended=_accepted(acceptance),
    )


def _accepted(acceptance: Acceptance) -> str:
    return (
        f"level of step {acceptance.step} accepted on {acceptance.accepted_at:%Y-%m-%d}: {one_line(acceptance.reason)}"
    )
