"""The evaluator's child process: the only file that imports EvalScope. Started as `python -m eval_jobs.evaluate.child`.

EvalScope resets logging when it is imported and reseeds the global random state in every run, so it lives here.
One request is one benchmark. The process ends when its stdin closes, so it never outlives its parent.
"""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import os
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import evalscope.report
import openai
from evalscope import TaskConfig, run_task
from evalscope.api import registry
from evalscope.api.benchmark import BenchmarkMeta, DefaultDataAdapter, MultiChoiceAdapter
from evalscope.api.dataset import DatasetDict, Sample
from evalscope.api.evaluator import TaskState
from evalscope.api.messages import ChatMessage
from evalscope.api.metric import Score
from evalscope.api.model import GenerateConfig, ModelOutput
from evalscope.evaluator import DefaultEvaluator
from evalscope.models.openai_compatible import OpenAICompatibleAPI
from evalscope.utils import function_utils
from evalscope.utils.multi_choices import MultipleChoiceTemplate
from typing_extensions import override

from eval_jobs.errors import BadData, EndpointFailed, EvaluateError, TrackerError, UnknownBenchmark
from eval_jobs.evaluate.answering import Gate, describe, is_overflow
from eval_jobs.evaluate.child_pipes import Send, own_stdout, requests_from_stdin
from eval_jobs.evaluate.journal import Journal
from eval_jobs.evaluate.protocol import Message, error_message
from eval_jobs.evaluate.scoring import chosen_letter, exact_score
from eval_jobs.evaluate.storage import is_full, storage_error
from eval_jobs.evaluate.task_config import OWN_NAMES

log = logging.getLogger("eval_jobs.evaluate.child")

MAX_DOUBTFUL = 0.1
"""More samples than this share without an answer, for which the server may be to blame: ask again later."""
ALIVE_TIMEOUT_S = 10.0


def main() -> None:
    """Serve requests until stdin closes."""
    send = own_stdout()
    requests = requests_from_stdin()
    _speed_up()
    registry.EVALUATOR_REGISTRY["default"] = Recorder
    send({"type": "ready"})
    while True:
        send(_outcome(requests.get(), send))


class StrictAPI(OpenAICompatibleAPI):  # type: ignore[misc]
    """EvalScope's client, except that a refused request is an error and not an answer to be scored."""

    def __init__(self, request: Message, config: GenerateConfig) -> None:
        super().__init__(
            model_name=request["model"],
            base_url=request["base_url"],
            api_key=_api_key(request["api_key_env"]),
            config=config,
            max_retries=0,
            timeout=request["timeout_s"],
        )
        self.gate = Gate(is_alive=self._is_alive, limit=request["concurrency"])
        self.thread = threading.local()
        """`seed`: what this thread's sample is to be asked with."""

    def generate(
        self, input: list[ChatMessage], tools: list[Any], tool_choice: object, config: GenerateConfig
    ) -> ModelOutput:
        """Ask through the gate, with the seed of the sample's repeat."""
        seed = getattr(self.thread, "seed", config.seed)
        config = config.model_copy(update={"seed": seed})
        return self.gate.ask(lambda: super(StrictAPI, self).generate(input, tools, tool_choice, config))

    def handle_bad_request(self, ex: Exception) -> ModelOutput:
        """Let a refusal through: EvalScope would score its text as the model's answer."""
        raise ex

    def _is_alive(self) -> bool:
        try:
            self.client.with_options(timeout=ALIVE_TIMEOUT_S).models.list()
        except openai.APIStatusError as error:
            return error.status_code < 500
        except (openai.OpenAIError, ValueError) as error:
            log.info("the server does not answer: %s", describe(error))
            return False
        return True


class Recorder(DefaultEvaluator):  # type: ignore[misc]
    """EvalScope's evaluator with a journal. Its hooks are meant for overriding; the way it is registered is ours."""

    journal: ClassVar[Journal]
    api: ClassVar[StrictAPI]

    def eval(self) -> object:
        """Evaluate; from here on errors are about data and no longer about settings."""
        if self.benchmark.benchmark_meta.sandbox_config:
            raise EvaluateError(f"`{self.benchmark.name}` runs code that the model wrote", hint="there is no sandbox")
        self.journal.stage = "loading"
        return super().eval()

    def _collect_work_items(self, dataset_dict: DatasetDict) -> Any:  # noqa: ANN401 - private to EvalScope
        samples = [(subset, sample) for subset, dataset in dataset_dict.items() for sample in dataset]
        self.journal.plan([_planned_row(subset, sample, self.journal.repeats) for subset, sample in samples])
        context = super()._collect_work_items(dataset_dict)
        to_ask = sum(item.needs_predict for item in context.work_items)
        self.journal.begin(metric=_first_metric(self.benchmark.metric_list), to_ask=to_ask)
        return context

    def _predict_sample(self, sample: Sample, model_prediction_dir: str) -> TaskState:
        self.api.thread.seed = self.api.config.seed + sample.id % self.journal.repeats
        return super()._predict_sample(sample, model_prediction_dir)

    def _process_work_item(self, item: Any, model_prediction_dir: str) -> Any:  # noqa: ANN401 - private to EvalScope
        asks = item.needs_predict
        try:
            return super()._process_work_item(item, model_prediction_dir)
        except Exception as error:
            if isinstance(error, EndpointFailed) or (isinstance(error, OSError) and is_full(error)):
                self.task_config.ignore_errors = False  # the pool then stops at this error instead of going on
                raise
            answered = item.prediction_persisted or not asks
            index = item.sample.id if asks else item.task_state.sample_id
            self.journal.fail((item.subset, index), describe(error), answered=answered)
            self.journal.step()
            raise

    def _persist_result(self, item: Any, task_state: TaskState, sample_score: object) -> None:  # noqa: ANN401
        super()._persist_result(item, task_state, sample_score)
        if item.needs_predict:
            self.journal.step()


def _own_meta(name: str, prompt_template: str) -> BenchmarkMeta:
    return BenchmarkMeta(
        name=OWN_NAMES[name],
        pretty_name=name,
        dataset_id=name,
        description=name,
        metric_list=["acc"],
        eval_split="test",
        prompt_template=prompt_template,
    )


@registry.register_benchmark(_own_meta("exact", "{question}"))
class Exact(DefaultDataAdapter):  # type: ignore[misc]
    """A question and its answer, scored by `scoring.exact_score`."""

    def load_from_disk(self, **_: object) -> tuple[DatasetDict, None]:
        """Read `<subset>_test.jsonl` as `mirror` writes it."""
        loaded: tuple[DatasetDict, None] = super().load_from_disk(use_local_loader=True)
        return loaded

    def record_to_sample(self, record: Mapping[str, Any]) -> Sample:
        """Read one row of the copy."""
        targets = record["targets"]
        return Sample(
            input=record["question"],
            target=targets[0] if len(targets) == 1 else targets,
            metadata={"cluster": record["cluster"], "id": record["id"], "targets": targets},
        )

    @override
    def match_score(
        self, original_prediction: str, filtered_prediction: str, reference: str, task_state: TaskState
    ) -> Score:
        """Compare with the accepted answers."""
        value = exact_score(filtered_prediction, task_state.metadata["targets"])
        return _score(value, original_prediction, filtered_prediction)


@registry.register_benchmark(_own_meta("choice", MultipleChoiceTemplate.SINGLE_ANSWER))
class Choice(MultiChoiceAdapter):  # type: ignore[misc]
    """A question with choices, answered by a letter, read by `scoring.chosen_letter`."""

    def load_from_disk(self, **_: object) -> tuple[DatasetDict, None]:
        """Read `<subset>_test.jsonl` as `mirror` writes it."""
        loaded: tuple[DatasetDict, None] = super().load_from_disk(use_local_loader=True)
        return loaded

    def record_to_sample(self, record: Mapping[str, Any]) -> Sample:
        """Read one row of the copy."""
        return Sample(
            input=record["question"],
            choices=record["choices"],
            target=record["targets"][0],
            metadata={"cluster": record["cluster"], "id": record["id"]},
        )

    def extract_answer(self, prediction: str, task_state: TaskState) -> str:
        """Find the letter."""
        return chosen_letter(prediction, len(task_state.choices))

    @override
    def match_score(
        self, original_prediction: str, filtered_prediction: str, reference: str, task_state: TaskState
    ) -> Score:
        """Compare the letters."""
        return _score(float(filtered_prediction == reference), original_prediction, filtered_prediction)


# --- private


def _outcome(request: Message, send: Send) -> Message:
    """Carry out one request; whatever happens becomes a message."""
    journal = Journal(request, send)
    try:
        _evaluate(request, journal)
    except TrackerError as error:
        return error_message(error)
    except Exception as error:
        log.exception("evaluating %s failed while %s", request["benchmark"], journal.stage)
        return error_message(_explained(error, request, journal.stage))
    return {"type": "result", "metric": journal.metric, "planned": journal.planned}


def _evaluate(request: Message, journal: Journal) -> None:
    task = dict(request["task"])
    api = StrictAPI(request, GenerateConfig(**task["generation_config"]))
    Recorder.journal, Recorder.api = journal, api
    resumable = (journal.folder / "configs" / "task_config.yaml").is_file()
    journal.drop_torn_lines()
    try:
        _run(task | {"use_cache": str(journal.folder) if resumable else None}, api)
    except Exception as error:
        if not resumable or journal.stage != "configuring" or isinstance(error, OSError):
            raise
        # Another EvalScope version, or a settings file torn by a kill: nothing there can be trusted any more.
        log.warning("starting %s anew, what was there cannot be used: %s", request["benchmark"], error)
        shutil.rmtree(journal.folder)
        _run(task, api)
    finally:
        api.client.close()
    _check_complete(request, journal, api.gate)


def _run(task: Mapping[str, Any], api: StrictAPI) -> None:
    try:
        run_task(TaskConfig(model=api, api_url=None, **task))
    except Exception as error:
        if not api.gate.reason:  # an error of another sample may come first
            raise
        journal = Recorder.journal
        raise EndpointFailed(
            f"{api.base_url} cannot be asked any more, {journal.answered} of {journal.planned} samples of "
            f"`{journal.name}` are answered: {api.gate.reason}",
            hint="what was answered is kept, the next try asks only the rest",
        ) from error


def _check_complete(request: Message, journal: Journal, gate: Gate) -> None:
    """Refuse a result that only shows that the server was not well.

    Raises:
        BadData: there was nothing to ask.
        EndpointFailed: too many answers are missing.
    """
    name = request["benchmark"]
    if not journal.planned:
        raise BadData(f"`{name}` has no samples", hint="check its data and subsets")
    details = journal.unanswered
    if gate.doubtful > MAX_DOUBTFUL * journal.planned:
        raise EndpointFailed(
            f"{gate.doubtful} of {journal.planned} requests of `{name}` got no proper answer: {details[0]}",
            hint="read the server's log; raise suite.request_timeout_s if it is only slow",
        )
    if len(details) == journal.planned and not any(map(is_overflow, details)):
        raise EndpointFailed(f"every request of `{name}` failed: {details[0]}", hint="the server refuses such requests")
    journal.finish()


def _explained(error: Exception, request: Message, stage: str) -> TrackerError:
    """Say in our own words what an error of EvalScope means."""
    name, text = request["benchmark"], f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and is_full(error):
        return storage_error(Path(request["task"]["work_dir"]), error)
    if isinstance(error, ImportError):
        return EvaluateError(f"`{name}` needs a package that is not installed: {error}", hint="install it")
    if stage == "loading":
        hint = "give a local copy with data, or check that this machine can reach the hub"
        return BadData(f"the data of `{name}` cannot be loaded: {text}", hint=hint)
    if stage == "configuring" and "not found" in str(error):
        return UnknownBenchmark(f"EvalScope does not know the benchmark of `{name}`: {error}", hint="check its name")
    return EvaluateError(f"EvalScope failed on `{name}` while {stage}: {text}", hint="read the traceback")


def _planned_row(subset: str, sample: Sample, repeats: int) -> dict[str, object]:
    return {
        "subset": subset,
        "index": sample.id,
        "repeat": sample.id % repeats,
        "messages": _messages(sample.input),
        "target": sample.target,
        "cluster": str((sample.metadata or {}).get("cluster") or ""),
    }


def _messages(prompt: Any) -> list[list[str]]:  # noqa: ANN401 - EvalScope's text or messages
    if isinstance(prompt, str):
        return [["user", prompt]]
    return [[message.role, _text(message.content)] for message in prompt]


def _text(content: Any) -> str:  # noqa: ANN401 - EvalScope's text or parts
    """Return a message's text; parts that are no text keep their content, without the random ids of messages."""
    if isinstance(content, str):
        return content
    return "".join(getattr(part, "text", None) or part.model_dump_json() for part in content)


def _score(value: float, prediction: str, extracted: str) -> Score:
    return Score(value={"acc": value}, main_score_name="acc", prediction=prediction, extracted_prediction=extracted)


def _first_metric(metrics: Sequence[str | Mapping[str, Any]]) -> str:
    first = metrics[0] if metrics else ""
    return first if isinstance(first, str) else next(iter(first))


def _api_key(variable: str) -> str:
    key = os.environ.get(variable, "") if variable else "EMPTY"
    if not key:
        raise EndpointFailed(f"the environment variable {variable} is not set", hint="set it to the endpoint's API key")
    return key


def _speed_up() -> None:
    """Take two waits out of EvalScope 1.14.

    It writes an HTML report that nobody looks at here, a second each. And it fills free slots only when all requests in
    flight have ended, or a second later: with answers of mixed length that doubled the time of an evaluation.
    """
    evalscope.report.gen_html_report_file = lambda *_, **__: ""
    function_utils.wait = functools.partial(function_utils.wait, return_when=concurrent.futures.FIRST_COMPLETED)


if __name__ == "__main__":
    main()
