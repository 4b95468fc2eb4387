"""`Evaluator` with EvalScope, in one long-running child process.

benchmark + data -> copy of the data (dataset_cache) -> request (task_config) -> child -> files in the run's folder
-> scores (parse)
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eval_jobs.errors import EndpointFailed, EvaluatorDied, TrackerError
from eval_jobs.evaluate.common import task_config
from eval_jobs.evaluate.common.child_process import ChildProcess
from eval_jobs.evaluate.common.outputs import Outputs
from eval_jobs.evaluate.common.parse import Planned, metric_name, token_sum
from eval_jobs.evaluate.common.plan_folders import ChildEvaluator
from eval_jobs.evaluate.common.protocol import Message, RetryPolicy, error_of
from eval_jobs.evaluate.data.dataset_cache import open_cached_dataset
from eval_jobs.evaluate.data.known_benchmarks import check_name
from eval_jobs.evaluate.data.layouts import CachedDataset
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import ShowProgress
from eval_jobs.records.progress import BenchmarkCount, Progress, Stage
from eval_jobs.types import Benchmark, Endpoint, EngineInfo, EngineKind, EvalResult, Suite

log = logging.getLogger(__name__)

MIN_SILENCE_S = 900.0
"""Seconds without a message after which a child counts as hung; loading and scoring send none while they run."""


class EvalScopeEvaluator(ChildEvaluator):
    """`eval_jobs.ports.Evaluator`. Everything it writes is below `work_dir`."""

    def __init__(
        self,
        work_dir: Path,
        python: str = sys.executable,
        *,
        log_name: str = "",
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """Create the evaluator; its child, run by `python`, starts with `prepare` or the first evaluation."""
        super().__init__(work_dir, log_name=log_name, retry_policy=retry_policy)
        self._python = python
        self._lock = threading.Lock()

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Start the child, whose imports take seconds; see the port."""
        try:
            self._startable_child(offline=all(b.data is not None for b in suite.benchmarks), key=api_key_env)
        except (EvaluatorDied, OSError) as error:
            log.info("cannot start the evaluator in advance: %s", error)

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Evaluate every sample of every benchmark and score it; see the port.

        UnknownBenchmark, BadData, EvaluateError: a retry does not help.
        EndpointRefused: a retry does not help until the key is corrected.
        EndpointFailed, EvaluatorDied: a retry may help; it requests only what is missing.
        DiskFull, StoreError: no space for data or answers, or no permission.
        """
        outcomes: dict[str, EvalResult | TrackerError] = {}
        tasks: list[_Task] = []
        for benchmark in suite.benchmarks:
            try:
                tasks.append(self._task(benchmark, suite, endpoint, plan_id))
            except TrackerError as error:
                outcomes[benchmark.name] = error
        try:
            if tasks:
                with self.held(plan_id, progress), self._lock:
                    outcomes |= self._carry_out(tasks, suite, endpoint, progress)
        except TrackerError as error:
            outcomes |= dict.fromkeys((task.benchmark.name for task in tasks), error)
        return tuple(outcomes[benchmark.name] for benchmark in suite.benchmarks)

    def first_question(self, suite: Suite) -> Planned:
        """Return the first question of the suite's only benchmark, rendered to be sent, or raise why there is none."""
        info = EngineInfo(name=EngineKind.REMOTE, version="", load_method="remote", load_s=0.0, log="")
        unreachable = Endpoint(base_url="http://127.0.0.1:1/v1", model="unreachable", api_key_env="", info=info)
        folder = self.work_dir / "runs" / task_config.run_folder(suite.benchmarks[0], suite, unreachable.model)
        # The questions are written down before the first request, which fails.
        (outcome,) = self.evaluate(suite, unreachable, plan_id=unreachable.model, progress=lambda _: None)
        planned = Outputs(folder, "").planned
        self.forget(unreachable.model)
        if not planned and isinstance(outcome, TrackerError):
            raise outcome
        return planned[0]

    def _logs(self, endpoint: Endpoint) -> str:
        server = f", server log: {endpoint.info.log}" if endpoint.info.log else ""
        return f"evaluator log: {self.log_path}{server}"

    def _task(self, benchmark: Benchmark, suite: Suite, endpoint: Endpoint, plan_id: str) -> _Task:
        check_name(benchmark.adapter)
        _check_key(endpoint)
        data = open_cached_dataset(benchmark, self.work_dir / "data")
        folder = self.work_dir / "runs" / task_config.run_folder(benchmark, suite, plan_id)
        message = task_config.benchmark_task(benchmark, suite, endpoint, folder=str(folder), data=data)
        fingerprint = benchmark_fingerprint(benchmark, suite)
        return _Task(benchmark=benchmark, fingerprint=fingerprint, folder=folder, data=data, json=message)

    def _carry_out(
        self, tasks: Sequence[_Task], suite: Suite, endpoint: Endpoint, progress: ShowProgress
    ) -> dict[str, EvalResult | TrackerError]:
        """Run all tasks in the child; if it dies, tasks that have finished keep their results."""
        # Benchmarks with the longest answers begin first, in the order of the suite among equals.
        in_order = sorted(tasks, key=lambda task: -task_config.max_tokens(task.benchmark, suite))
        request = task_config.evaluate_request(suite, endpoint, [task.json for task in in_order])
        request["retry_policy"] = asdict(self.retry_policy)
        outcomes: dict[str, EvalResult | TrackerError] = {}
        asking_s: dict[str, float] = {}
        started_s = time.monotonic()
        try:
            offline = all(task.data is not None for task in tasks)
            with closing(self._replies(request, progress, offline=offline)) as replies:
                for reply in replies:
                    task = next(task for task in tasks if task.benchmark.name == reply["benchmark"])
                    outcomes[task.benchmark.name] = _outcome(task, reply, logs=self._logs(endpoint))
                    asking_s[task.benchmark.name] = reply["asking_s"]
        except EvaluatorDied as error:
            outcomes = dict.fromkeys((task.benchmark.name for task in tasks), error) | outcomes
        return _with_durations(outcomes, asking_s, time.monotonic() - started_s)

    def _replies(self, request: Message, progress: ShowProgress, *, offline: bool) -> Generator[Message, None, None]:
        counts = SampleCounts([task["benchmark"] for task in request["tasks"]])
        finished = False
        try:
            child = self._running_child(progress, offline=offline, key=request["api_key_env"])
            progress(counts.loading)
            for message in child.ask(request, silence_s=MIN_SILENCE_S + 3 * request["timeout_s"]):
                if message["type"] == "progress":
                    progress(counts.after(message))
                else:
                    yield message
            finished = not child.is_worn()
        finally:
            if not finished:  # the child died, is worn or was interrupted: it must not send further requests
                self.close()

    def _running_child(self, progress: ShowProgress, *, offline: bool, key: str) -> ChildProcess:
        child = self._startable_child(offline=offline, key=key)
        if not child.is_ready:
            progress(Progress(stage=Stage.EVALUATING, note="starting the evaluator"))
            child.wait_ready()
        return child

    def _startable_child(self, *, offline: bool, key: str) -> ChildProcess:
        # The hub's client reads its offline switch once, on import: with local data only, the child never uses the hub.
        # And a child has only the key of its own endpoint.
        child = self._child
        if child is not None and not (child.is_running() and (child.offline, child.key) == (offline, key)):
            self.close()
        if self._child is None:
            self._child = ChildProcess(self._python, self.work_dir, self.log_path, offline=offline, key=key)
        return self._child


class SampleCounts:
    """Number of finished samples, over all benchmarks of one evaluation, which run at the same time."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts: dict[str, BenchmarkCount] = {}

    @property
    def loading(self) -> Progress:
        """Progress before the first request."""
        return Progress(stage=Stage.EVALUATING, benchmarks=self._names, note="loading")

    def after(self, message: Message) -> Progress:
        """Return the progress after a message of one benchmark; benchmarks not loaded yet are not counted."""
        count = BenchmarkCount(benchmark=message["benchmark"], done=message["done"], total=message["total"])
        self._counts[count.benchmark] = count
        counts = tuple(self._counts[name] for name in self._names if name in self._counts)
        return Progress(
            stage=Stage.EVALUATING,
            benchmarks=self._names,
            done=sum(one.done for one in counts),
            total=sum(one.total for one in counts),
            counts=counts,
        )


@dataclass(frozen=True, kw_only=True)
class _Task:
    benchmark: Benchmark
    fingerprint: str
    folder: Path
    data: CachedDataset | None
    json: task_config.Json


def _outcome(task: _Task, reply: Message, *, logs: str) -> EvalResult | TrackerError:
    if reply["type"] != "result":
        return error_of(_with_path_of_user(reply, task.data, task.benchmark), logs=logs)
    outputs = Outputs(task.folder, task_config.evalscope_name(task.benchmark))
    try:
        _check_planned(outputs, reply["planned"], logs=logs)
    except EvaluatorDied as error:
        return error
    return EvalResult(
        benchmark=task.benchmark.name,
        fingerprint=task.fingerprint,
        metric=metric_name(outputs.reviews.values(), default=reply["metric"]),
        samples=outputs.samples(),
        duration_s=0.0,
        higher_is_better=task.benchmark.higher_is_better,
        left_out=reply.get("left_out", 0),
        input_tokens=token_sum(outputs.predictions.values(), "input_tokens"),
        output_tokens=token_sum(outputs.predictions.values(), "output_tokens"),
    )


def _with_durations(
    outcomes: Mapping[str, EvalResult | TrackerError], asking_s: Mapping[str, float], wall_s: float
) -> dict[str, EvalResult | TrackerError]:
    """Divide the total time among benchmarks, in proportion to the time their requests were in flight."""
    total_s = sum(asking_s.values())
    return {
        name: replace(outcome, duration_s=wall_s * (asking_s[name] / total_s if total_s else 1 / len(asking_s)))
        if isinstance(outcome, EvalResult)
        else outcome
        for name, outcome in outcomes.items()
    }


def _with_path_of_user(reply: Message, data: CachedDataset | None, benchmark: Benchmark) -> Message:
    if data is None or benchmark.data is None:
        return reply
    return reply | {"message": str(reply["message"]).replace(str(data.folder), benchmark.data)}


def _check_planned(outputs: Outputs, planned: int, *, logs: str) -> None:
    """Reject files that differ from the child's report: a result without all its samples would look complete."""
    found = len(outputs.planned) - len(outputs.lost_answers(outputs.failures))
    if not found or found != planned:
        raise EvaluatorDied(
            f"the evaluator's folder {outputs.folder} contains {found} of {planned} planned samples",
            hint=f"check whether another program writes there; a retry requests the missing samples; {logs}",
        )


def _check_key(endpoint: Endpoint) -> None:
    if endpoint.api_key_env and not os.environ.get(endpoint.api_key_env):
        raise EndpointFailed(
            f"the API key of {endpoint.base_url} is not set",
            hint=f"set the environment variable {endpoint.api_key_env} and restart the worker",
        )
