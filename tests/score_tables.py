"""What `RunScores` holds, as plain dictionaries, and the same made from records with loops: the two must agree."""

import math
from collections.abc import Iterable

import numpy as np

from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tracker.domain.records.losses import Measure
from tracker.domain.scores.matrix import values_at
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import SeriesKey, series_key

Table = dict[tuple[SeriesKey, int, str, Measure], float | None]
"""(series, step, sample, measure) -> value where up is better; None: no score."""


def table_of(scores: RunScores) -> Table:
    table: Table = {}
    for key, series in scores.series.items():
        for measure in scores.measures:
            values = values_at(series.matrices[measure], np.arange(len(series.steps)))
            for t, step in enumerate(series.steps):
                for i, sample_id in enumerate(series.sample_ids):
                    value = float(values[t, i])
                    table[key, step, sample_id, measure] = None if math.isnan(value) else value
    return table


def table_of_records(records: Iterable[EvalRecord]) -> Table:
    ordered = sorted(records, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id))
    newest = {
        (series_key(record.plan, outcome), record.plan.checkpoint.step): (record, outcome)
        for record in ordered
        for outcome in record.outcomes
        if isinstance(outcome, EvalResult) and outcome.samples
    }
    table: Table = {}
    for (key, step), (record, result) in newest.items():
        asked = {s.sample_id for (k, _), (_, r) in newest.items() if k == key for s in r.samples}
        for sample_id in asked:
            answers = [s for s in result.samples if s.sample_id == sample_id and _counts(s)]
            for measure in Measure:
                values = [_value(record, result, answer, measure) for answer in answers]
                known = [value for value in values if value is not None]
                table[key, step, sample_id, measure] = math.fsum(known) / len(known) if known else None
    return table


def _counts(sample: SampleScore) -> bool:
    if sample.score is None or not abs(sample.score) <= 1e100:
        return False
    return sample.status in (SampleStatus.SCORED, SampleStatus.TRUNCATED)


def _value(record: EvalRecord, result: EvalResult, sample: SampleScore, measure: Measure) -> float | None:
    if measure is Measure.COMPLETENESS:
        return float(sample.status is not SampleStatus.TRUNCATED)
    if measure is Measure.SCORE:
        assert sample.score is not None
        return sample.score if result.higher_is_better else 1.0 - sample.score
    benchmark = next((b for b in record.plan.suite.benchmarks if b.name == result.benchmark), None)
    longest = (benchmark and benchmark.max_tokens) or record.plan.suite.generation.max_tokens
    return None if sample.output_tokens is None else 1.0 - sample.output_tokens / longest
