"""Rows of a plan that are evaluated if a suite evaluates a part of each benchmark. Pure.

rows = rows_of_part(rows, {"samples": 60, "share": 0.0, "is_rest": False})
"""

from collections.abc import Mapping, Sequence

from eval_jobs.evaluate.common.parse import planned_sample
from eval_jobs.screening import Question, screen_of
from eval_jobs.types import Screen, ScreenPart

Row = dict[str, object]


def part_to_json(part: ScreenPart | None) -> dict[str, object]:
    """Return a suite's part as an entry of a task; {} if everything is evaluated."""
    if part is None:
        return {}
    return {"part": {"samples": part.screen.samples, "share": part.screen.share, "is_rest": part.is_rest}}


def rows_of_part(rows: Sequence[Row], part: Mapping[str, object] | None) -> Sequence[Row]:
    """Return the planned rows in a part from `part_to_json`; the repeats of a question stay together."""
    if part is None:
        return rows
    planned = [planned_sample(row) for row in rows]
    screen = Screen(samples=int(str(part["samples"])), share=float(str(part["share"])))
    chosen = screen_of((Question(key=p.key, subset=p.subset, cluster=p.cluster) for p in planned), screen)
    return [row for row, p in zip(rows, planned, strict=True) if (p.key in chosen) is not part["is_rest"]]
