"""All scores of a run, as bytes: the input of verdicts, the ledger and curves. Pure.

A record with samples as objects takes hundreds of bytes per sample; here a 0/1 score takes one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from eval_jobs.types import EvalRecord, EvalResult
from tracker.domain.records.losses import Measure
from tracker.domain.scores.matrix import EncodedRow, ScoreMatrix, encoded, matrix_of
from tracker.domain.scores.sample_columns import Questions, SampleColumns
from tracker.domain.scores.series import (
    BenchmarkSeries,
    SeriesKey,
    SeriesRow,
    all_asked,
    empty_series,
    place_in,
    row_of,
    sample_means_of,
    series_keys,
    series_without_step,
    values_of,
    with_row,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunScores:
    """All series of one run."""

    run_id: str
    measures: tuple[Measure, ...] = tuple(Measure)
    """What is stored of each result."""
    series: Mapping[SeriesKey, BenchmarkSeries] = field(default_factory=dict)

    def of(self, benchmark: str, suite: str | None = None) -> tuple[BenchmarkSeries, ...]:
        """Return the series of a benchmark, the one with the newest checkpoint last."""
        found = [series for series in self.series.values() if series.key.benchmark == benchmark]
        if suite is not None:
            found = [series for series in found if series.key.suite == suite]
        return tuple(sorted(found, key=lambda s: (s.steps[-1], s.finished_at[-1])))

    def benchmarks(self) -> tuple[str, ...]:
        """Return the names of all benchmarks, in order of their first checkpoint, then as in the suite."""
        ordered = sorted(self.series.values(), key=lambda s: (s.steps[0], s.plans[0].suite.name, _place_in_suite(s)))
        return tuple(dict.fromkeys(series.key.benchmark for series in ordered))


def with_record(scores: RunScores, record: EvalRecord, columns: Mapping[str, SampleColumns]) -> RunScores:
    """Return the scores with one more record; of two with the same step and settings the newer one stays.

    `columns` are the samples of every result of `record`, by benchmark; its own samples are not used.
    """
    series = dict(scores.series)
    for key, result in _results(record, columns):
        known = series.get(key) or empty_series(key, result, scores.measures)
        means = sample_means_of(columns[key.benchmark], known.asked)
        row = row_of(record, result, coverage=columns[key.benchmark].coverage, asked=means.questions)
        series[key] = with_row(known, row, values_of(known, means, record.plan))
    return replace(scores, series=series)


def scores_of(
    run_id: str,
    records: Iterable[tuple[EvalRecord, Mapping[str, SampleColumns]]],
    measures: tuple[Measure, ...] = tuple(Measure),
) -> RunScores:
    """Return the scores of a run from records in any order: as repeated `with_record`, but copies each score once.

    `records` may be lazy; only `measures` of each result are kept.
    """
    drafts: dict[SeriesKey, _Draft] = {}
    for record, columns in records:
        for key, result in _results(record, columns):
            if key not in drafts:
                drafts[key] = _Draft(empty_series(key, result, measures))
            drafts[key].add(record, result, columns[key.benchmark])
    series = {key: draft.finished() for key, draft in drafts.items()}
    return RunScores(run_id=run_id, measures=measures, series=series)


def without_step(scores: RunScores, step: int) -> RunScores:
    """Return the scores without the checkpoint of a step."""
    left = {key: series_without_step(series, step) for key, series in scores.series.items()}
    return replace(scores, series={key: series for key, series in left.items() if series.plans})


def _place_in_suite(series: BenchmarkSeries) -> int:
    names = [benchmark.name for benchmark in series.plans[0].suite.benchmarks]
    if series.key.benchmark in names:
        return names.index(series.key.benchmark)
    return len(names)


def _results(record: EvalRecord, columns: Mapping[str, SampleColumns]) -> Iterator[tuple[SeriesKey, EvalResult]]:
    scored = {name for name, own in columns.items() if own.questions.sample_ids.size}
    results = [o for o in record.results if o.benchmark in scored]
    return zip(series_keys(record.plan, results), results, strict=True)


class _Draft:
    """A series under construction: each checkpoint is stored as bytes, and all are joined at the end."""

    def __init__(self, empty: BenchmarkSeries) -> None:
        self._empty = empty
        self._rows: dict[int, tuple[SeriesRow, Mapping[Measure, EncodedRow]]] = {}
        """By step."""
        self._asked: tuple[Questions, ...] = ()
        """Distinct questions so far."""
        self._palettes = {measure: matrix.palette for measure, matrix in empty.matrices.items()}

    def add(self, record: EvalRecord, result: EvalResult, columns: SampleColumns) -> None:
        means = sample_means_of(columns, self._asked)
        row = row_of(record, result, coverage=columns.coverage, asked=means.questions)
        if row.asked not in self._asked:
            self._asked = (*self._asked, row.asked)
        step = record.plan.checkpoint.step
        if step in self._rows and self._rows[step][0].rank > row.rank:
            return
        values = values_of(self._empty, means, record.plan)
        codes = {measure: encoded(values[measure], self._palettes[measure]) for measure in values}
        self._palettes = {measure: codes[measure].palette for measure in codes}
        self._rows[step] = row, codes

    def finished(self) -> BenchmarkSeries:
        rows, codes = zip(*(self._rows[step] for step in sorted(self._rows)), strict=True)
        asked = tuple(row.asked for row in rows)
        samples = all_asked(asked)
        return replace(
            self._empty,
            plans=tuple(row.plan for row in rows),
            finished_at=tuple(row.finished_at for row in rows),
            coverage=np.array([row.coverage for row in rows]),
            asked=asked,
            left_out=np.array([row.left_out for row in rows], dtype=np.int64),
            samples=samples,
            matrices=self._matrices(codes, asked, samples),
        )

    def _matrices(
        self, codes: Sequence[Mapping[Measure, EncodedRow]], asked: Sequence[Questions], samples: Questions
    ) -> dict[Measure, ScoreMatrix]:
        places = {id(questions): place_in(samples, questions) for questions in asked}
        columns, n = [places[id(questions)] for questions in asked], samples.sample_ids.size
        matrices = {}
        for measure in self._empty.matrices:
            matrices[measure] = matrix_of([of_row[measure] for of_row in codes], columns, n)
        return matrices
