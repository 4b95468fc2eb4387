"""The folder of an EvalScope evaluation -> the sheet of its checkpoint. Pure.

    configs/task_config.yaml                settings of the evaluation
    reports/<model>/<dataset>.json          one score for each dataset
    predictions/, reviews/ <model>/<dataset>_<subset>.jsonl    answers, and their scores

Answers and scores are parsed in the same way as by our own evaluator (`eval_jobs.evaluate.common.parse`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eval_jobs.contexts import with_contexts
from eval_jobs.errors import BadData
from eval_jobs.evaluate.common.parse import Place, Planned, Row, by_place, metric_name, parse_samples, token_sum
from eval_jobs.harness.fields import Fields, whole
from eval_jobs.harness.known_tasks import SHARES_DOWN
from eval_jobs.harness.samples import missing_samples
from eval_jobs.identity import content_hash
from eval_jobs.records.imported import Aggregate
from eval_jobs.types import Benchmark, EvalResult
from tracker.domain.imports.lm_eval import stderr_of
from tracker.domain.imports.steps import step_of_result
from tracker.domain.imports.types import Given, ImportedBenchmark, LeftOut, Sheet, engine_of, result_without_samples

EVALSCOPE = "evalscope"

_RUN_SETTINGS = ("generation_config", "limit", "repeats", "chat_template", "eval_backend", "judge_strategy", "seed")
_NOT_OF_SCORES = frozenset(
    (
        *("description", "pretty_name", "paper_url", "tags", "data_statistics", "sample_example", "name"),
        *("force_redownload", "review_timeout", "output_types", "local_path"),
    )
)
_PACE = frozenset(("timeout", "retries", "retry_interval", "stream", "batch_size", "max_workers"))
"""Generation settings that only affect timeouts, retries and speed."""
_LONG = 80


@dataclass(frozen=True, kw_only=True)
class EvalScopeFolder:
    """Files of one evaluation."""

    config: Fields
    reports: Mapping[str, Fields]
    """By dataset."""
    predictions: Mapping[str, Sequence[Row]]
    """By `<dataset>_<subset>`."""
    reviews: Mapping[str, Sequence[Row]]


def sheet_of_evalscope(folder: EvalScopeFolder, given: Given) -> Sheet:
    """Return the contents of the folder.

    Raises:
        BadData: it cannot be read, or its step cannot be determined.
    """
    measured: list[ImportedBenchmark] = []
    left_out: list[LeftOut] = []
    for name, subsets in _datasets(folder).items():
        benchmark = _benchmark(folder, name)
        result, note = _result(folder, benchmark, subsets)
        if result is not None:
            directed = replace(benchmark, higher_is_better=result.higher_is_better)
            measured.append(ImportedBenchmark(benchmark=directed, outcome=result))
        if note:
            what = name if result is None else f"samples of {name}"
            left_out.append(LeftOut(source=given.source, name=what, reason=note))
    models = (folder.config.text("model"), *(report.text("model_name") for report in folder.reports.values()))
    return Sheet(
        source=given.source,
        step=step_of_result(given, models),
        model=next((model for model in models if model), ""),
        measured_at=given.modified_at,
        engine=engine_of(EVALSCOPE),
        measured=tuple(measured),
        left_out=tuple(left_out),
        metrics=tuple({one.outcome.metric: None for one in measured if isinstance(one.outcome, EvalResult)}),
    )


def _datasets(folder: EvalScopeFolder) -> dict[str, tuple[str, ...]]:
    """Return the subsets with rows of every dataset; one dataset's name may be a prefix of another's."""
    names = {*folder.reports, *folder.config.mapping("dataset_args").values}
    found: dict[str, list[str]] = {name: [] for name in folder.reports}
    for stem in dict.fromkeys((*folder.reviews, *folder.predictions)):
        owner = max((name for name in names if stem.startswith(f"{name}_")), key=len, default="")
        if not owner:
            raise BadData(
                f"{folder.config.source}: cannot assign {stem}.jsonl to a dataset",
                hint="keep reports/ and configs/ of the evaluation next to its reviews/",
            )
        found.setdefault(owner, []).append(stem[len(owner) + 1 :])
    return {name: tuple(subsets) for name, subsets in found.items()}


def _benchmark(folder: EvalScopeFolder, name: str) -> Benchmark:
    asked = folder.config.mapping("dataset_args").mapping(name).values
    return Benchmark(
        name=name,
        adapter=EVALSCOPE,
        few_shot=whole(asked.get("few_shot_num")),
        repeats=whole(folder.config.values.get("repeats")) or 1,
        measured_with=_settings(folder.config, asked),
    )


def _settings(config: Fields, asked: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    generation = config.mapping("generation_config").values
    found = {f"dataset.{name}": value for name, value in asked.items() if name not in _NOT_OF_SCORES}
    found |= {name: config.values.get(name) for name in _RUN_SETTINGS}
    found["generation_config"] = {name: value for name, value in generation.items() if name not in _PACE}
    return tuple(sorted((name, _short(value)) for name, value in found.items() if value not in (None, "", {}, [])))


def _short(value: object) -> str:
    text = str(value)
    if len(text) <= _LONG and not isinstance(value, dict):
        return text
    return content_hash(value)


def _result(folder: EvalScopeFolder, benchmark: Benchmark, subsets: Sequence[str]) -> tuple[EvalResult | None, str]:
    """Return the result of a dataset, and a note on what is not imported."""
    report = folder.reports.get(benchmark.name)
    stems = {subset: f"{benchmark.name}_{subset}" for subset in subsets}
    lacking = [stem for stem in stems.values() if stem not in folder.predictions]
    if not stems:
        return _of_report(benchmark, report), ""
    if lacking:
        why = f"predictions/{lacking[0]}.jsonl is missing, so failed and truncated answers are unknown"
        return _of_report(benchmark, report), f"{why}: importing only the reported mean"
    result = _of_samples(folder, benchmark, stems)
    scores = [sample.score for sample in result.samples if sample.score is not None]
    if all(0 <= score <= 1 for score in scores):
        return result, ""
    return None, f"`{result.metric}` is not a score from 0 to 1"


def _of_samples(folder: EvalScopeFolder, benchmark: Benchmark, stems: Mapping[str, str]) -> EvalResult:
    predictions: dict[Place, Row] = {}
    reviews: dict[Place, Row] = {}
    for subset, stem in stems.items():
        predictions |= by_place(subset, folder.predictions[stem])
        reviews |= by_place(subset, folder.reviews.get(stem, ()))
    planned = tuple(_planned(predictions, reviews))
    samples = with_contexts(parse_samples(planned, predictions, reviews, {}))
    report = folder.reports.get(benchmark.name)
    expected = None if report is None or "num" not in report.values else report.count("num")
    metric = metric_name(reviews.values(), _reported_metric(report))
    return replace(
        _blank(benchmark, metric),
        samples=(*samples, *missing_samples(len(samples), expected)),
        input_tokens=token_sum(predictions.values(), "input_tokens"),
        output_tokens=token_sum(predictions.values(), "output_tokens"),
    )


def _planned(predictions: Mapping[Place, Row], reviews: Mapping[Place, Row]) -> Iterator[Planned]:
    """Yield the evaluated questions in the order of their places; several answers to one question are its repeats."""
    repeats: Counter[tuple[str, str]] = Counter()
    for subset, index in sorted({*predictions, *reviews}):
        review = reviews.get((subset, index), {})
        asked = review or predictions.get((subset, index), {})
        known = review.get("sample_score")
        group = known.get("group_id", index) if isinstance(known, dict) else index
        yield Planned(
            subset=subset,
            index=index,
            repeat=repeats[subset, str(group)],
            messages=tuple(_messages(asked.get("messages"))),
            target=str(review.get("target") or ""),
        )
        repeats[subset, str(group)] += 1


def _messages(found: object) -> Iterator[tuple[str, str]]:
    for message in found if isinstance(found, list) else ():
        if isinstance(message, dict):
            role, content = str(message.get("role") or ""), message.get("content")
            if role in ("system", "user"):
                yield role, content if isinstance(content, str) else str(_texts(content))


def _texts(content: object) -> object:
    """Return the content of a message in parts without its ids, which differ in every run."""
    if isinstance(content, list):
        return [_texts(part) for part in content]
    if isinstance(content, dict):
        return {k: v for k, v in content.items() if k != "id"}
    return content


def _of_report(benchmark: Benchmark, report: Fields | None) -> EvalResult | None:
    if report is None:
        return None
    mean = report.number("score")
    if not 0 <= mean <= 1:
        raise report.refusal("score", f"must be from 0 to 1, not {mean:g}")
    samples = report.count("num") if "num" in report.values else None
    aggregate = Aggregate(mean=mean, stderr=stderr_of(mean, None, samples), samples=samples)
    return replace(_blank(benchmark, _reported_metric(report)), aggregate=aggregate)


def _reported_metric(report: Fields | None) -> str:
    listed = None if report is None else report.values.get("metrics")
    first = listed[0] if isinstance(listed, list) and listed else None
    if isinstance(first, dict):
        return str(first.get("name") or "score")
    return "score"


def _blank(benchmark: Benchmark, metric: str) -> EvalResult:
    up = metric.removeprefix("mean_") not in SHARES_DOWN
    return result_without_samples(replace(benchmark, higher_is_better=up), metric)
