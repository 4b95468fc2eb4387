"""Rows of a trainer's log -> points of training curves. Pure.

    points = points_of(trainer_state["log_history"], up_to_step=500)

A row is a mapping with a step and numbers: `log_history` of trainer_state.json, a line of ms-swift's logging.jsonl
(`"global_step/max_steps": "4/20"`), of LLaMA-Factory's trainer_log.jsonl, or of any log with one of STEP_KEYS.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from eval_jobs.limits import CURVE_POINTS
from tracker.domain.health.logs.step_lines import SUMMARY
from tracker.domain.records.metric_keys import unique_keys
from tracker.domain.records.types import CurvePoint

PREFIX = "train/"

STEP_KEYS = ("step", "global_step", "global_step/max_steps", "current_steps", "_step", "iteration")
"""Names of the optimizer step in logs, in order of preference."""

NO_CURVES = {*STEP_KEYS, "max_steps", "total_steps", "total_flos", "percentage"}

SPELLINGS = {"lr": "learning_rate", "train_loss": "loss", "val_loss": "eval_loss"}
"""Names of some trainers -> the name that most use, so that runs share their charts."""

Row = Mapping[str, object]


def points_of(rows: Iterable[object], *, up_to_step: int) -> tuple[CurvePoint, ...]:
    """Return all finite numbers of `rows` as points, ordered by step, then by key.

    A later row wins over an earlier one with the same step: a resumed trainer writes steps again. Rows without a step,
    values that are not numbers and steps beyond `up_to_step` are left out, and of too many values the first.
    """
    values: dict[tuple[str, int], float] = {}
    most = CURVE_POINTS.most
    for step, row in _steps(rows):
        if step <= up_to_step:
            for name, value in row.items():
                number = _number(value)
                if number is not None and name and name not in NO_CURVES:
                    values[SPELLINGS.get(name, name), step] = number
            if len(values) > most + most // 4:
                values = _newest(values, most)
    values = _newest(values, most)
    keys = unique_keys(name for name, _ in values)
    points = (CurvePoint(key=PREFIX + keys[name], step=step, value=value) for (name, step), value in values.items())
    return tuple(sorted(points, key=lambda p: (p.step, p.key)))


def step_of_row(row: Row) -> int | None:
    """Return the optimizer step that a row belongs to, or None."""
    for key in STEP_KEYS:
        value = row.get(key)
        if isinstance(value, str):
            value = value.partition("/")[0]
        number = _number(value)
        if number is not None and number >= 0 and number.is_integer():
            return int(number)
    return None


def _newest(values: dict[tuple[str, int], float], most: int) -> dict[tuple[str, int], float]:
    return dict(islice(values.items(), max(0, len(values) - most), None))


def _steps(rows: Iterable[object]) -> Iterator[tuple[int, Row]]:
    for row in rows:
        if not isinstance(row, Mapping) or SUMMARY in row:
            continue
        step = step_of_row(row)
        if step is not None:
            yield step, row


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if math.isfinite(number):
        return number
    return None
