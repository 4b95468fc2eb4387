"""Scores of subsets, from the samples of runs. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from tracker.domain.records.losses import Measure
from tracker.domain.scores.matrix import values_at
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import BenchmarkSeries
from tracker.domain.scores.statistics.paired import standard_error
from tracker.domain.tables.catalog import SCORES
from tracker.domain.tables.columns import Rows

_LEADING = ("run", "step", "suite", "benchmark", "subset")
_OF_WHOLE = ("run", "step", "suite", "benchmark", "metric", "higher_is_better", "fingerprint", "finished_at", "plan_id")


def with_subsets(whole: Rows, runs: Iterable[RunScores]) -> Rows:
    """Return the table `scores` with a row for each subset after its benchmark, where there are several.

    Args:
        whole: the table of what is asked for.
        runs: scores of its runs, without checkpoints that training left behind.
    """
    columns = {name: list(values) for name, values in whole.items()}
    rows: list[Mapping[str, object]] = []
    by_place: dict[tuple[object, object], Mapping[str, object]] = {}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        rows.append(row)
        by_place[row["plan_id"], row["benchmark"]] = row
    for scores in runs:
        for series in scores.series.values():
            rows += _of_series(series, by_place)
    rows.sort(key=lambda row: tuple(row[name] for name in _LEADING))
    return {name: [row.get(name) for row in rows] for name in SCORES.names}


def _of_series(
    series: BenchmarkSeries, by_place: Mapping[tuple[object, object], Mapping[str, object]]
) -> Iterator[Mapping[str, object]]:
    if len(series.samples.grouping.names) < 2:
        return
    for row, plan in enumerate(series.plans):
        whole = by_place.get((plan.id, series.key.benchmark))
        if whole is not None:
            own = {name: whole[name] for name in _OF_WHOLE}
            for numbers in _of_row(series, row):
                yield {**own, "failure": "", **numbers}


def _of_row(series: BenchmarkSeries, row: int) -> Iterator[Mapping[str, object]]:
    grouping, planned = series.samples.grouping, Counter(series.asked[row].subsets.tolist())
    values = values_at(series.matrices[Measure.SCORE], np.array([row]))[0]
    if not series.higher_is_better:
        values = 1 - values
    for number, name in enumerate(grouping.names):
        own = values[grouping.index == number]
        known = own[~np.isnan(own)]
        if planned[name]:
            yield {
                "subset": name,
                "score": float(known.mean()) if known.size else None,
                "stderr": standard_error(known),
                "coverage": known.size / planned[name],
                "planned": planned[name],
                "scored": known.size,
            }
