"""Result files of lm-evaluation-harness, all versions -> one sheet for each checkpoint. Pure.

One file is one checkpoint. A file with `checkpoints` holds a whole run: each value is a list with one entry per step.
If a task reports several metrics, one is imported: the first wanted one, else the first that is a score from 0 to 1.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from eval_jobs.errors import BadData
from eval_jobs.harness.fields import Fields, finite, value_text
from eval_jobs.harness.metrics import Metric, NoScore, chosen_metric, metrics_of, problem_of
from eval_jobs.harness.samples import Row, missing_samples, samples_of_task
from eval_jobs.limits import TASKS
from eval_jobs.records.imported import Aggregate
from eval_jobs.types import Benchmark, BenchmarkFailure, EvalResult, Outcome, SampleScore
from tracker.domain.imports.lm_eval_settings import HARNESS, reported_few_shot, reported_model_names, settings_of
from tracker.domain.imports.steps import step_of_result
from tracker.domain.imports.types import Given, ImportedBenchmark, LeftOut, Sheet, engine_of, result_without_samples

SamplesByTask = Mapping[str, Sequence[Row]]

_MEAN_TOLERANCE = 1e-6


def is_lm_eval(document: Mapping[str, object]) -> bool:
    """Return whether a JSON document is a result file of the harness."""
    marks = ("versions", "configs", "config", "checkpoints", "n-shot", "higher_is_better")
    return isinstance(document.get("results"), dict) and any(mark in document for mark in marks)


def sheets_of_lm_eval(document: Fields, samples: SamplesByTask, given: Given) -> tuple[Sheet, ...]:
    """Return the contents of a result file, one sheet for each checkpoint.

    `samples` are the rows of the `samples_*.jsonl` files next to it, by task.

    Raises:
        BadData: it cannot be read, or its step cannot be determined.
    """
    if "checkpoints" in document.values:
        return tuple(_sheet(part, {}, replace(given, step=step)) for step, part in _parts(document))
    return (_sheet(document, samples, given),)


def _parts(document: Fields) -> Iterator[tuple[int, Fields]]:
    steps = document.numbers("checkpoints")
    results = document.mapping("results")
    for at, step in enumerate(steps):
        tasks = {task: dict(_values_at(results.mapping(task), at, len(steps))) for task in results.values}
        if step < 0 or step != int(step):
            raise document.refusal("checkpoints", f"must be a list of steps, not {step:g}")
        yield int(step), Fields(source=document.source, values={**document.values, "results": tasks})


def _values_at(entry: Fields, at: int, count: int) -> Iterator[tuple[str, object]]:
    for metric, values in entry.values.items():
        if not isinstance(values, list) or len(values) != count:
            raise entry.refusal(metric, f"must have {count} values, one for every entry of `checkpoints`")
        yield metric, values[at]


def _sheet(document: Fields, samples: SamplesByTask, given: Given) -> Sheet:
    models = reported_model_names(document)
    measured: list[ImportedBenchmark] = []
    left_out: list[LeftOut] = []
    results = document.mapping("results")
    metrics: dict[str, None] = {}
    for task in _tasks(document):
        for known in metrics_of(document, results.mapping(task), task):
            if not problem_of(known):
                metrics |= dict.fromkeys((known.name, known.key))
        try:
            one, metric = _measured(document, results.mapping(task), task, given.metrics)
        except NoScore as problem:
            left_out.append(LeftOut(source=given.source, name=task, reason=str(problem)))
            continue
        one, note = _with_samples(document, one, metric, samples.get(task))
        measured.append(one)
        if note:
            left_out.append(LeftOut(source=given.source, name=f"samples of {task}", reason=note))
    return Sheet(
        source=given.source,
        step=step_of_result(given, models),
        model=next(iter(models), ""),
        measured_at=_measured_at(document, given),
        engine=engine_of(HARNESS, document.text("lm_eval_version")),
        measured=tuple(measured),
        left_out=tuple(left_out),
        metrics=tuple(metrics),
    )


def _measured_at(document: Fields, given: Given) -> datetime:
    date = document.optional_number("date")
    try:
        if date is None:
            return given.modified_at
        return datetime.fromtimestamp(date, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise document.refusal("date", f"is not a Unix timestamp: {date:g}") from error


def _tasks(document: Fields) -> Iterator[str]:
    """Yield the tasks without groups: a group's score is the mean of tasks that are listed themselves."""
    groups = set(document.mapping("groups").values)
    subtasks = document.mapping("group_subtasks").values
    groups |= {name for name, members in subtasks.items() if members}
    results = document.mapping("results").values
    if len(results) > TASKS.most:
        raise document.refusal("results", f"has {len(results):,} tasks (at most {TASKS.most:,})")
    return (task for task in results if task not in groups)


def _measured(document: Fields, entry: Fields, task: str, wanted: Sequence[str]) -> tuple[ImportedBenchmark, Metric]:
    metric = chosen_metric(metrics_of(document, entry, task), wanted)
    benchmark = Benchmark(
        name=task,
        adapter=HARNESS,
        few_shot=reported_few_shot(document, task),
        higher_is_better=bool(metric.up),
        measured_with=settings_of(document, task, metric.name, metric.filter),
    )
    return ImportedBenchmark(benchmark=benchmark, outcome=_outcome(document, entry, benchmark, metric)), metric


def _outcome(document: Fields, entry: Fields, benchmark: Benchmark, metric: Metric) -> Outcome:
    result, mean = result_without_samples(benchmark, metric.key), finite(metric.mean)
    if mean is None:
        return BenchmarkFailure(
            benchmark=benchmark.name,
            fingerprint=result.fingerprint,
            code=BadData.code,
            message=f"`{entry.path}.{metric.key}` is not a number: {value_text(metric.mean)}",
            hint="evaluate this checkpoint again",
            retryable=False,
        )
    counts = document.mapping("n-samples").mapping(benchmark.name)
    samples = counts.count("effective") if "effective" in counts.values else None
    stderr = stderr_of(mean, finite(metric.stderr), samples)
    return replace(result, aggregate=Aggregate(mean=mean, stderr=stderr, samples=samples))


def stderr_of(mean: float, reported: float | None, samples: int | None) -> float | None:
    """Return the reported standard error, else the maximum for that many scores from 0 to 1, else None."""
    if reported is not None and reported >= 0:
        return reported
    if samples is not None and samples > 1:
        return math.sqrt(mean * (1 - mean) / (samples - 1))
    return None


def _with_samples(
    document: Fields, one: ImportedBenchmark, metric: Metric, rows: Sequence[Row] | None
) -> tuple[ImportedBenchmark, str]:
    """Return a benchmark with its samples, or unchanged with the reason why it has none."""
    outcome, task = one.outcome, one.benchmark.name
    if rows is None or not isinstance(outcome, EvalResult) or outcome.aggregate is None:
        return one, ""
    others = metrics_of(document, document.mapping("results").mapping(task), task)
    through = sum(other.name == metric.name for other in others)
    read = samples_of_task(rows, metric=metric.name, through=metric.filter, filters=through)
    if isinstance(read, str):
        return one, f"{read}: importing only mean and standard error"
    if why := _contradiction(read, outcome.aggregate):
        return one, f"{why}: importing only mean and standard error"
    samples = (*read, *missing_samples(len(read), outcome.aggregate.samples))
    return replace(one, outcome=replace(outcome, samples=samples, aggregate=None)), ""


def _contradiction(samples: Sequence[SampleScore], reported: Aggregate) -> str:
    if reported.samples is not None and len(samples) > reported.samples:
        return f"{len(samples)} samples, but {reported.samples} evaluated"
    known = [sample.score for sample in samples if sample.score is not None]
    if len(known) == len(samples) == (reported.samples or len(samples)):
        mean = sum(known) / len(known)
        if abs(mean - reported.mean) > _MEAN_TOLERANCE:
            return f"their mean {mean:.6g} is not the reported one, {reported.mean:.6g}"
    return ""
