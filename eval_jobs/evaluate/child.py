"""The evaluator's child process, which drives EvalScope. Started as `python -m eval_jobs.evaluate.child`.

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
from evalscope.api.dataset import DatasetDict, Sample
from evalscope.api.dataset.hub import DatasetHub
from evalscope.api.evaluator import TaskState
from evalscope.api.messages import ChatMessage, ChatMessageUser
from evalscope.api.model import GenerateConfig, ModelOutput
from evalscope.evaluator import DefaultEvaluator
from evalscope.models.openai_compatible import OpenAICompatibleAPI
from evalscope.utils import function_utils

from eval_jobs.errors import (
    BadData,
    EndpointFailed,
    EndpointRefused,
    EvaluateError,
    EvaluatorDied,
    TrackerError,
    UnknownBenchmark,
)
from eval_jobs.evaluate.answer_check import BadAnswer, check_answer
from eval_jobs.evaluate.answering import CONTROL_FAILURES, Gate, NoAnswer
from eval_jobs.evaluate.blame import Blame, blame, describe, is_overflow
from eval_jobs.evaluate.child_pipes import Send, own_stdout, requests_from_stdin
from eval_jobs.evaluate.http_client import http_client
from eval_jobs.evaluate.journal import Failure, Journal, PlanChanged
from eval_jobs.evaluate.known_benchmarks import code_refusal, runs_code
from eval_jobs.evaluate.outputs import Outputs
from eval_jobs.evaluate.own_benchmarks import register_own
from eval_jobs.evaluate.parse import Place
from eval_jobs.evaluate.pauses import Pauses
from eval_jobs.evaluate.plan_lock import held
from eval_jobs.evaluate.protocol import Message, error_message
from eval_jobs.evaluate.storage import is_full, is_storage_error, storage_error

log = logging.getLogger("eval_jobs.evaluate.child")

MAX_DOUBTFUL = 0.1
"""More samples than this share without an answer, for which the server may be to blame: try all of it again later."""
ALIVE_TIMEOUT_S = 10.0


def main() -> None:
    """Serve requests until stdin closes."""
    send = own_stdout()
    requests = requests_from_stdin()
    _speed_up()
    trust_no_data_set()
    register_own()
    registry.EVALUATOR_REGISTRY["default"] = Recorder
    send({"type": "ready"})
    while True:
        send(_outcome(requests.get(), send))


def trust_no_data_set() -> None:
    """Keep code that comes with a data set from being run: EvalScope trusts every one of ModelScope's."""
    DatasetHub.trust_remote = property(lambda _: False, lambda _, __: None)


class StrictAPI(OpenAICompatibleAPI):  # type: ignore[misc]
    """EvalScope's client, except that a refused request is an error and not an answer to be scored."""

    def __init__(self, request: Message, config: GenerateConfig) -> None:
        key = _api_key(request["api_key_env"])
        super().__init__(
            model_name=request["model"],
            base_url=request["base_url"],
            api_key=key,
            config=config,
            max_retries=0,
            timeout=request["timeout_s"],
            http_client=http_client(request["timeout_s"], secret=key),
        )
        own_engine = bool(request["own_engine"])
        self.gate = Gate(
            is_alive=self._is_alive,
            limit=request["concurrency"],
            own_engine=own_engine,
            pauses=Pauses(**request["pauses"]),
        )
        self._signed_by = str(request["model"]) if own_engine else ""
        """Our own engine goes by a random name; what a gateway calls the model is its own business."""
        self.thread = threading.local()
        """`seed`: what this thread's sample is to be asked with."""

    def generate(
        self, input: list[ChatMessage], tools: list[Any], tool_choice: object, config: GenerateConfig
    ) -> ModelOutput:
        """Ask through the gate, with the seed of the sample's repeat."""
        seed = getattr(self.thread, "seed", config.seed)
        config = config.model_copy(update={"seed": seed})
        return self.gate.ask(lambda: super(StrictAPI, self).generate(input, tools, tool_choice, config))

    def take_controls(self, answered: Sequence[Sample], to_ask: Sequence[Sample]) -> None:
        """Choose the questions that show whether the server lives: one answered before, else a short and a late one."""
        controls = answered[:1] or (*sorted(to_ask, key=lambda sample: len(str(sample.input)))[:1], *to_ask[-1:])
        self.gate.control = self.gate.control or functools.partial(self._ask_one_of, controls)

    def _ask_one_of(self, samples: Sequence[Sample]) -> None:
        """Return when one of these is answered; what the last one raises is raised."""
        for sample in samples:
            question = [ChatMessageUser(content=sample.input)] if isinstance(sample.input, str) else sample.input
            try:
                super().generate(question, [], "none", self.config)
            except CONTROL_FAILURES:
                if sample is samples[-1]:
                    raise
            else:
                return

    def on_response(self, response: Message) -> None:
        """Refuse what is no answer: EvalScope would score a missing text as an empty one."""
        check_answer(response, model=self._signed_by)

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
        name = self.benchmark.name
        if self.benchmark.benchmark_meta.sandbox_config or runs_code(name):  # by whatever way it came here
            raise code_refusal(name)
        self.journal.stage = "loading"
        return super().eval()

    def _collect_work_items(self, dataset_dict: DatasetDict) -> Any:  # noqa: ANN401 - private to EvalScope
        samples = [(subset, sample) for subset, dataset in dataset_dict.items() for sample in dataset]
        self.journal.plan([_planned_row(subset, sample, self.journal.repeats) for subset, sample in samples])
        context = super()._collect_work_items(dataset_dict)
        to_ask = {(item.subset, item.sample.id) for item in context.work_items if item.needs_predict}
        self.journal.begin(metric=_first_metric(self.benchmark.metric_list), to_ask=len(to_ask))
        self.api.take_controls(
            answered=[sample for subset, sample in samples if (subset, sample.id) not in to_ask],
            to_ask=[sample for subset, sample in samples if (subset, sample.id) in to_ask],
        )
        return context

    def _predict_sample(self, sample: Sample, model_prediction_dir: str) -> TaskState:
        self.api.thread.seed = self.api.config.seed + sample.id % self.journal.repeats
        return super()._predict_sample(sample, model_prediction_dir)

    def _process_work_item(self, item: Any, model_prediction_dir: str) -> Any:  # noqa: ANN401 - private to EvalScope
        asks = item.needs_predict
        place = (item.subset, item.sample.id if asks else item.task_state.sample_id)
        try:
            if asks and (refusal := self.journal.refusal(place)):
                raise NoAnswer(refusal, may_pass=False)
            return super()._process_work_item(item, model_prediction_dir)
        except Exception as error:
            if isinstance(error, EndpointFailed | EndpointRefused) or is_storage_error(error):
                self.task_config.ignore_errors = False  # the pool then stops at this error instead of going on
                raise
            failure = _failure(error, answered=item.prediction_persisted or not asks)
            self.journal.fail(place, failure)
            if asks:
                self.journal.step(answered=failure.answered)
            raise

    def _persist_result(self, item: Any, task_state: TaskState, sample_score: object) -> None:  # noqa: ANN401
        super()._persist_result(item, task_state, sample_score)
        if item.needs_predict:
            self.journal.step(answered=True)


# --- private


def _outcome(request: Message, send: Send) -> Message:
    """Carry out one request; whatever happens becomes a message."""
    journal = Journal(request, send)
    # The lock of our parent ends with it; if we are stuck then and do not notice, nobody else may write here.
    ours = journal.folder.parent / "child.lock"
    try:
        with held(ours, on_wait=lambda: log.warning("another evaluator still works in %s", ours.parent)):
            _evaluate(request, journal)
    except TrackerError as error:
        return error_message(error)
    except Exception as error:
        log.exception("evaluating %s failed while %s", request["benchmark"], journal.stage)
        return error_message(_explained(error, request, journal.stage))
    return {"type": "result", "metric": journal.metric, "planned": journal.planned}


def _evaluate(request: Message, journal: Journal) -> None:
    """Ask everything; then, after a while and again, what got no answer from a server that lives."""
    task = dict(request["task"])
    api = StrictAPI(request, GenerateConfig(**task["generation_config"]))
    Recorder.journal, Recorder.api = journal, api
    try:
        for pause_s in (*request["pauses"]["lost_s"], None):
            _pass(task, api)
            outputs = Outputs(journal.folder, task["datasets"][0])
            lost = outputs.lost_answers(journal.failures)
            again = (*journal.doubtful, *lost, *outputs.lost_scores(journal.failures))
            if pause_s is None or not again:
                break
            log.warning("%s: asking again, in %.0f s, for %s", journal.name, pause_s, again)
            threading.Event().wait(pause_s)
            journal.begin_again()
    finally:
        api.client.close()
    _check_complete(journal, lost)


def _pass(task: Mapping[str, Any], api: StrictAPI) -> None:
    """Ask what has no answer yet."""
    journal = Recorder.journal
    journal.stage = "configuring"
    resumable = (journal.folder / "configs" / "task_config.yaml").is_file()
    journal.drop_torn_lines()
    try:
        _run({**task, "use_cache": str(journal.folder) if resumable else None}, api)
    except Exception as error:
        of_settings = journal.stage == "configuring" and not isinstance(error, OSError)
        if not isinstance(error, PlanChanged) and not (resumable and of_settings):
            raise
        # Another EvalScope version, other data, or a settings file torn by a kill: nothing there can be trusted.
        log.warning("starting %s anew, what was there cannot be used: %r", journal.name, error)
        shutil.rmtree(journal.folder)
        _run(task, api)


def _run(task: Mapping[str, Any], api: StrictAPI) -> None:
    try:
        run_task(TaskConfig(model=api, api_url=None, **task))
    except Exception as error:
        closed = api.gate.error
        if closed is None:  # an error of another sample may come first
            raise
        journal = Recorder.journal
        again = "what was answered is kept, the next try asks only the rest"
        raise type(closed)(
            f"{api.base_url} cannot be asked any more, {journal.answered} of {journal.planned} samples of "
            f"`{journal.name}` are answered: {closed.message}",
            hint=again if closed.retryable else closed.hint,
        ) from error


def _check_complete(journal: Journal, lost: Sequence[Place]) -> None:
    """Refuse a result that only shows that the server was not well, or the disk.

    Raises:
        BadData: there was nothing to ask.
        EndpointFailed: too many answers are missing.
        EvaluatorDied: answers that were written are gone.
    """
    name = journal.name
    if not journal.planned:
        raise BadData(f"`{name}` has no samples", hint="check its data and subsets")
    details = journal.unanswered
    if len(details) == journal.planned and not any(map(is_overflow, details)):
        raise EndpointFailed(f"every request of `{name}` failed: {details[0]}", hint="the server refuses such requests")
    journal.finish()
    # Once: in another evaluation, of a server that was perhaps started anew, the same samples count as not answered.
    if len(journal.newly_doubtful) > MAX_DOUBTFUL * journal.planned:
        raise EndpointFailed(
            f"{len(journal.doubtful)} of {journal.planned} requests of `{name}` got no proper answer: {details[0]}",
            hint="read the server's log; raise suite.request_timeout_s if it is only slow",
        )
    if lost:
        raise EvaluatorDied(
            f"{len(lost)} of {journal.planned} answers of `{name}` were written to {journal.folder} and are gone",
            hint="is its disk full or broken, or does something else delete there? The next try asks them again",
        )


def _explained(error: Exception, request: Message, stage: str) -> TrackerError:
    """Say in our own words what an error of EvalScope means."""
    name, text = request["benchmark"], f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and (is_full(error) or (stage == "asking" and is_storage_error(error))):
        return storage_error(Path(request["task"]["work_dir"]), error)
    if isinstance(error, ImportError):
        return EvaluateError(f"`{name}` needs a package that is not installed: {error}", hint="install it")
    if stage == "loading":
        hint = "give a local copy with data, or check that this machine can reach the hub"
        return BadData(f"the data of `{name}` cannot be loaded: {text}", hint=hint)
    if stage == "configuring" and "not found" in str(error):
        return UnknownBenchmark(f"EvalScope does not know the benchmark of `{name}`: {error}", hint="check its name")
    return EvaluateError(f"EvalScope failed on `{name}` while {stage}: {text}", hint="read the traceback")


def _failure(error: Exception, *, answered: bool) -> Failure:
    if isinstance(error, NoAnswer):
        return Failure(detail=str(error), answered=answered, may_pass=error.may_pass and not answered)
    # A benchmark that holds a conversation of its own does not come through the gate.
    from_server = isinstance(error, openai.OpenAIError | BadAnswer) and blame(error) is not Blame.SAMPLE
    return Failure(detail=describe(error), answered=answered, may_pass=from_server and not answered)


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
