"""EvalScope's evaluator with a journal and shared threads. Only the evaluator's child imports this."""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import evalscope
import openai
from evalscope import TaskConfig
from evalscope.api import registry
from evalscope.api.dataset import DatasetDict, Sample
from evalscope.api.evaluator import TaskState
from evalscope.api.model import Model
from evalscope.evaluator import DefaultEvaluator
from evalscope.utils.asyncio_runtime import AsyncioLoopRunner
from evalscope.utils.io_utils import OutputsStructure

from eval_jobs.contexts import AskedSample, document_id_of, shared_contexts
from eval_jobs.errors import EndpointFailed, EndpointRefused
from eval_jobs.evaluate.asking.circuit_breaker import NoAnswer
from eval_jobs.evaluate.asking.failures import FailureKind, classify_failure, describe
from eval_jobs.evaluate.asking.journal import Failure, Journal
from eval_jobs.evaluate.asking.shared_pool import SharedPool
from eval_jobs.evaluate.common.answer_check import BadAnswer
from eval_jobs.evaluate.common.task_config import rows_of_part
from eval_jobs.evaluate.data.known_benchmarks import code_refusal, runs_code
from eval_jobs.evaluate.evalscope.child.model_api import StrictAPI
from eval_jobs.host.storage import is_storage_error


class Recorder(DefaultEvaluator):  # type: ignore[misc]
    """Evaluates one benchmark once. It overrides public hooks, and methods with an underscore, private to EvalScope."""

    def __init__(
        self, task: TaskConfig, *, journal: Journal, pool: SharedPool, on_loaded: Callable[[], object]
    ) -> None:
        """Prepare the evaluation without loading data.

        `on_loaded` is called when all data are loaded, before any request is sent.
        """
        benchmark = registry.get_benchmark(task.datasets[0], task)
        if benchmark.benchmark_meta.sandbox_config or runs_code(benchmark.name):  # however it got here
            raise code_refusal(benchmark.name)
        benchmark.validate_judge_strategy()
        self.api: StrictAPI = task.model
        model = Model(self.api, task.generation_config)
        super().__init__(benchmark, model, OutputsStructure(task.work_dir), task)
        self.journal = journal
        self._pool = pool
        self._on_loaded = on_loaded

    def eval(self) -> object:
        """Evaluate; from here on errors concern data, no longer settings."""
        self.journal.stage = "loading"
        return super().eval()

    def get_report(self, *_: object) -> None:
        """Make no report: it is not used, because scores are read from the files."""

    def _collect_work_items(self, dataset_dict: DatasetDict) -> Any:  # noqa: ANN401 - private to EvalScope
        rows = self._kept_rows(dataset_dict)
        samples = [(subset, sample) for subset, dataset in dataset_dict.items() for sample in dataset]
        made_by = {"evalscope": evalscope.__version__, "benchmark": self.benchmark.benchmark_meta.evaluation_version}
        self.journal.plan(rows, made_by=made_by)
        context = super()._collect_work_items(dataset_dict)
        to_ask = {(item.subset, item.sample.id) for item in context.work_items if item.needs_predict}
        context.work_items.sort(key=prompt_of)
        self.journal.begin(metric=_first_metric(self.benchmark.metric_list), to_ask=len(to_ask))
        self.api.take_controls(
            answered=[sample for subset, sample in samples if (subset, sample.id) not in to_ask],
            to_ask=[sample for subset, sample in samples if (subset, sample.id) in to_ask],
        )
        return context

    def _kept_rows(self, dataset_dict: DatasetDict) -> Sequence[dict[str, object]]:
        """Return the planned rows and remove samples outside the part to evaluate; the others keep their ids."""
        rows = _planned_rows(dataset_dict, self.journal.repeats)
        if self.journal.part is None:
            return rows
        chosen = rows_of_part(rows, self.journal.part)
        kept = {(row["subset"], row["index"]) for row in chosen}
        self.journal.left_out = (len(rows) - len(kept)) // self.journal.repeats
        if not self.journal.left_out:
            return rows
        for name, dataset in tuple(dataset_dict.items()):
            dataset_dict[name] = dataset.filter(lambda sample, name=name: (name, sample.id) in kept)
            if not len(dataset_dict[name]):
                del dataset_dict[name]
        return chosen

    def _run_pool(self, context: Any) -> dict[str, list[Any]]:  # noqa: ANN401 - private to EvalScope
        """Request and score all samples in the shared pool; EvalScope itself has threads for each benchmark."""
        self._on_loaded()
        by_subset: dict[str, list[Any]] = defaultdict(list)
        work = functools.partial(self._process_work_item, model_prediction_dir=context.model_prediction_dir)
        cost = float(self.model.config.max_tokens or 0)
        with self._pool.each(context.work_items, work, cost=cost) as ended:
            for item, outcome in ended:
                error = outcome.exception() or self._write_score(item, *outcome.result())
                if error is not None:
                    self._note_failure(item, error)
                    continue
                by_subset[item.subset].append(outcome.result())
                if item.needs_predict:
                    self.journal.step(answered=True)
        return by_subset

    def _process_work_item(self, item: Any, model_prediction_dir: str) -> Any:  # noqa: ANN401 - private to EvalScope
        try:
            if item.needs_predict and (refusal := self.journal.refusal((item.subset, item.sample.id))):
                raise NoAnswer(refusal, may_pass=False)
            return super()._process_work_item(item, model_prediction_dir)
        finally:
            self.api.limiter.release()  # a failure outside the breaker keeps it, and this thread may send no more
            AsyncioLoopRunner.shutdown_for_thread()

    def _predict_sample(self, sample: Sample, model_prediction_dir: str) -> TaskState:
        self.api.thread.seed = self.model.config.seed + sample.id % self.journal.repeats
        try:
            return self.benchmark.run_inference(model=self.model, sample=sample, output_dir=model_prediction_dir)
        finally:
            self.journal.note_asking(self.api.limiter.spent_s())

    def _write_score(self, item: Any, task_state: TaskState, score: object) -> Exception | None:  # noqa: ANN401
        if score is None:  # scored at the end, with all other samples
            return None
        try:
            self.cache_manager.save_review_cache(item.subset, task_state, score, self.benchmark.save_metadata)
        except Exception as error:  # noqa: BLE001 - a score that cannot be written is this sample's, unless it is the disk
            return error
        return None

    def _note_failure(self, item: Any, error: BaseException) -> None:  # noqa: ANN401 - private to EvalScope
        """Record why a sample has no answer or no score; raise errors that concern all samples."""
        if not isinstance(error, Exception):  # a scorer called `sys.exit`, or was cancelled
            error = RuntimeError(f"{type(error).__name__}: {error}")
        if isinstance(error, EndpointFailed | EndpointRefused) or is_storage_error(error):
            raise error
        asks = item.needs_predict
        self._execution_tracker.record_error(item.subset)
        failure = _failure(error, answered=item.prediction_persisted or not asks)
        self.journal.failures[item.subset, item.sample.id if asks else item.task_state.sample_id] = failure
        if asks:
            self.journal.step(answered=failure.answered)


def prompt_of(item: Any) -> list[list[str]]:  # noqa: ANN401 - private to EvalScope
    """Return the messages of a sample to send, and nothing for an answered one, which only needs a score.

    In this order prompts with the same examples or passage follow each other, while the engine's prefix cache has them.
    """
    if not item.needs_predict:
        return []
    return _messages(item.sample.input)


def _failure(error: Exception, *, answered: bool) -> Failure:
    if isinstance(error, NoAnswer):
        return Failure(detail=str(error), answered=answered, may_pass=error.may_pass and not answered)
    # A benchmark with its own conversation loop does not use the breaker.
    from_server = (
        isinstance(error, openai.OpenAIError | BadAnswer) and classify_failure(error) is not FailureKind.SAMPLE
    )
    return Failure(detail=describe(error), answered=answered, may_pass=from_server and not answered)


def _planned_rows(dataset_dict: DatasetDict, repeats: int) -> list[dict[str, object]]:
    """Return a row for every sample, with its cluster: contexts are found before a part of the samples is chosen."""
    samples = [(subset, sample) for subset, dataset in dataset_dict.items() for sample in dataset]
    clusters = shared_contexts([_asked(subset, sample) for subset, sample in samples])
    return [
        {
            "subset": subset,
            "index": sample.id,
            "repeat": sample.id % repeats,
            "messages": _messages(sample.input),
            "target": sample.target,
            "cluster": cluster,
        }
        for (subset, sample), cluster in zip(samples, clusters, strict=True)
    ]


def _asked(subset: str, sample: Sample) -> AskedSample:
    metadata = sample.metadata or {}
    prompt = "\n\n".join(text for _, text in _messages(sample.input))
    declared = str(metadata.get("cluster") or "")
    return AskedSample(subset=subset, prompt=prompt, declared=declared, document=document_id_of(metadata))


def _messages(prompt: Any) -> list[list[str]]:  # noqa: ANN401 - EvalScope's text or messages
    if isinstance(prompt, str):
        return [["user", prompt]]
    return [[message.role, _text(message.content)] for message in prompt]


def _text(content: Any) -> str:  # noqa: ANN401 - EvalScope's text or parts
    """Return a message's text; parts that are not text keep their content, without the random ids of messages."""
    if isinstance(content, str):
        return content
    return "".join(getattr(part, "text", None) or part.model_dump_json() for part in content)


def _first_metric(metrics: Sequence[str | Mapping[str, Any]]) -> str:
    first = metrics[0] if metrics else ""
    if isinstance(first, str):
        return first
    return next(iter(first))
