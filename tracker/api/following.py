"""Verdicts as they are reached."""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from eval_jobs.errors import StoreError
from eval_jobs.ports import Clock
from eval_jobs.records.changes import ChangeKind
from tracker.api.formats.frames import frame_of
from tracker.api.reading import ChosenRuns
from tracker.domain.tables.catalog import VERDICTS
from tracker.domain.tables.measured import verdicts_table
from tracker.domain.tables.selection import StoredEvaluation

if TYPE_CHECKING:
    from pandas import DataFrame

log = logging.getLogger(__name__)

LOOK_S = 2.0


def followed(runs: ChosenRuns, since: int | None, clock: Clock) -> Generator[DataFrame]:
    """Return an iterator that never ends; see `Project.follow`. What is there already is looked up now."""
    seen = set()
    for one in _judged(runs):
        if since is None or one.step < since:
            seen.add(one.plan_id)
    return _follow(runs, seen, clock)


def _follow(runs: ChosenRuns, seen: set[str], clock: Clock) -> Generator[DataFrame]:
    position: str | None = None
    is_away = False
    while True:
        try:
            after, found = _news(runs, position)
            new = [(one.plan_id, _verdicts_on(runs, one)) for one in found if one.plan_id not in seen]
            position, is_away = after, False
        except StoreError as error:
            new = []
            if not is_away:
                log.warning("cannot read verdicts, trying again: %s", error)
            is_away = True
        for plan_id, frame in new:
            seen.add(plan_id)
            yield frame
        clock.sleep(LOOK_S)


def _news(runs: ChosenRuns, position: str | None) -> tuple[str, list[StoredEvaluation]]:
    """Return the new position, and the evaluations with verdicts if any has changed since."""
    if position is None:
        return runs.history.position(), _judged(runs)
    position, changes = runs.history.changes(position)
    if any(change.kind is ChangeKind.EVALUATION for change in changes):
        return position, _judged(runs)
    return position, []


def _judged(runs: ChosenRuns) -> list[StoredEvaluation]:
    """Return the evaluations with verdicts, the oldest first."""
    judged = []
    for one in runs.tables.evaluations(runs.names):
        if one.judged_at is not None:
            judged.append((one.judged_at, one))
    return [one for _, one in sorted(judged)]


def _verdicts_on(runs: ChosenRuns, one: StoredEvaluation) -> DataFrame:
    rows = runs.tables.verdicts((one.run_id,))
    return frame_of(VERDICTS, verdicts_table(replace(rows, evaluations=(one,))))
