"""Files of one lm-evaluation-harness run and outcomes of its requests -> one result."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import ConfigError, EvaluateError
from eval_jobs.evaluate.lm_eval.command import METRIC
from eval_jobs.evaluate.lm_eval.outcomes import Outcomes, RequestOutcome
from eval_jobs.harness.fields import Fields
from eval_jobs.harness.metrics import Metric, NoScore, chosen_metric, metrics_of
from eval_jobs.harness.samples import Row, contexts_of, missing_samples, samples_of_task, through_filter
from eval_jobs.host.bounded.files import lines_of, read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.identity import benchmark_fingerprint, content_hash
from eval_jobs.types import Benchmark, EvalResult, SampleScore, SampleStatus, Suite

GENERATES = "generate_until"


def read_result(folder: Path, benchmark: Benchmark, suite: Suite, outcomes: Outcomes) -> EvalResult:
    """Read the files of the harness below `folder`.

    Raises:
        EvaluateError: files are missing or incomplete, or the tasks have no usable metric in common.
        ConfigError: the version of the harness is not the planned one.
    """
    document = _document(folder)
    _check_version(document, benchmark)
    rows = {task: _rows(folder, task) for task in document.mapping("configs").values}
    if not rows:
        raise _odd(folder, "no tasks")
    metrics = {task: _metric(document, task, benchmark) for task in rows}
    keys = sorted({metric.key for metric in metrics.values()})
    if len(keys) > 1:
        raise EvaluateError(
            f"the tasks of `{benchmark.adapter}` have no metric in common: {', '.join(keys)}",
            hint=f"set options.{METRIC} to one that all of them report, or evaluate the tasks separately",
        )
    samples: list[SampleScore] = []
    for task, metric in metrics.items():
        generates = document.mapping("configs").mapping(task).values.get("output_type") == GENERATES
        found = _samples(document, task, metric, rows[task], outcomes, generates=generates)
        samples += found if len(metrics) == 1 else _of_subset(found, task)
    input_tokens, output_tokens = outcomes.tokens()
    return EvalResult(
        benchmark=benchmark.name,
        fingerprint=benchmark_fingerprint(benchmark, suite),
        metric=keys[0],
        samples=tuple(samples),
        duration_s=0.0,
        higher_is_better=benchmark.higher_is_better,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def _document(folder: Path) -> Fields:
    paths = sorted(folder.glob("**/results_*.json"))
    if not paths:
        raise _odd(folder, "no results file")
    try:
        values = parse_json(read_bytes(paths[-1], limits.RESULTS))
    except (OSError, ValueError) as error:
        raise _odd(paths[-1], str(error)) from error
    if not isinstance(values, dict):
        raise _odd(paths[-1], "not a JSON object")
    return Fields(source=str(paths[-1]), values=values)


def _check_version(document: Fields, benchmark: Benchmark) -> None:
    """Check the version in the harness's file: it may have been updated since this worker checked."""
    wrote, program = f"lm-eval {document.text('lm_eval_version')}", benchmark.program
    if program is not None and wrote != program.version:
        raise ConfigError(
            f"`{benchmark.name}` was planned with {program.version}, but evaluated with {wrote}",
            hint="restart the tracker on every machine: lm-eval was updated in the meantime",
        )


def _rows(folder: Path, task: str) -> tuple[Row, ...]:
    # Match the whole name: `gsm8k` is a prefix of `gsm8k_cot`, whose samples are in the same folder.
    name = re.compile(rf"samples_{re.escape(task)}_\d{{4}}-\d\d-\d\dT[\d.-]+\.jsonl")
    paths = sorted(path for path in folder.rglob("samples_*.jsonl") if name.fullmatch(path.name))
    if not paths:
        raise _odd(folder, f"no samples of {task}")
    try:
        rows = tuple(map(parse_json, lines_of(paths[-1], limits.ROW)))
    except (OSError, ValueError) as error:
        raise _odd(paths[-1], str(error)) from error
    if not all(isinstance(row, dict) for row in rows):
        raise _odd(paths[-1], "a line is not a JSON object")
    return rows


def _metric(document: Fields, task: str, benchmark: Benchmark) -> Metric:
    wanted = "" if benchmark.program is None else benchmark.program.option(METRIC)
    entry = document.mapping("results").mapping(task)
    try:
        metric = chosen_metric(metrics_of(document, entry, task), (wanted,) if wanted else ())
    except NoScore as problem:
        raise EvaluateError(f"`{task}` has no score: {problem}", hint="choose another task") from problem
    if wanted and wanted not in (metric.name, metric.key):
        known = ", ".join(one.key for one in metrics_of(document, entry, task))
        raise EvaluateError(
            f"`{task}` has no metric `{wanted}` that is a score",
            hint=f"set options.{METRIC} to one that it reports: {known}",
        )
    if metric.up is not benchmark.higher_is_better:
        better, setting = ("higher", "true") if metric.up else ("lower", "false")
        raise EvaluateError(
            f"{better} `{metric.name}` is better, but `{benchmark.name}` is set to the opposite",
            hint=f"set higher_is_better = {setting}",
        )
    return metric


def _samples(
    document: Fields, task: str, metric: Metric, rows: Sequence[Row], outcomes: Outcomes, *, generates: bool
) -> tuple[SampleScore, ...]:
    entry = document.mapping("results").mapping(task)
    filters = sum(one.name == metric.name for one in metrics_of(document, entry, task))
    read = samples_of_task(rows, metric=metric.name, through=metric.filter, filters=filters)
    if isinstance(read, str):
        raise EvaluateError(f"cannot use the samples of `{task}`: {read}", hint=f"see {document.source}")
    if generates:
        own = through_filter(rows, metric.filter)
        answered = [outcomes.of(task, row.get("doc_id")) for row in own]
        read = tuple(map(_seen, read, own, answered))
    else:
        refusal = outcomes.first_refusal()
        read = tuple(_with_detail(sample, refusal) for sample in read)
    count = document.mapping("n-samples").mapping(task).values.get("effective")
    return (*read, *missing_samples(len(read), count if isinstance(count, int) else None))


def _with_detail(sample: SampleScore, refusal: str) -> SampleScore:
    if refusal and sample.status is SampleStatus.ERROR:
        return replace(sample, detail=refusal)
    return sample


def _seen(sample: SampleScore, row: Mapping[str, object], outcomes: Sequence[RequestOutcome]) -> SampleScore:
    """Return a sample with the outcomes of its requests: the harness also scores truncated and rejected answers."""
    seen = list(outcomes)
    if len(seen) < len(contexts_of(row)):
        seen.append(RequestOutcome(status=SampleStatus.ERROR, detail="request not recorded"))
    tokens = [one.output_tokens for one in seen if one.output_tokens is not None]
    sample = replace(sample, output_tokens=max(tokens, default=None))
    by_status = {one.status: one for one in reversed(seen)}
    if SampleStatus.ERROR in by_status:
        detail = by_status[SampleStatus.ERROR].detail
        return replace(sample, score=None, status=SampleStatus.ERROR, answer="", detail=detail)
    if sample.status is SampleStatus.SCORED and SampleStatus.TRUNCATED in by_status:
        return replace(sample, status=SampleStatus.TRUNCATED)
    return sample


def _of_subset(samples: Sequence[SampleScore], task: str) -> Iterator[SampleScore]:
    for sample in samples:
        yield replace(sample, subset=task, sample_id=content_hash([task, sample.sample_id]))


def _odd(place: Path, what: str) -> EvaluateError:
    return EvaluateError(
        f"{place} is not lm-eval output: {what}", hint="see the evaluator log in logs/ of the work folder"
    )
