"""`Evaluator` with lm-evaluation-harness, in any environment where it is installed.

benchmark -> request (command) -> child: lm_eval with our model -> its files and outcomes -> scores (results)

One child for each benchmark, one after the other. A run that ended early starts over and reuses the stored responses.
The harness's command comes from the settings, never from a checkpoint or a task.
"""

import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

from eval_jobs.errors import ConfigError, TrackerError
from eval_jobs.evaluate.common.child_process import ChildProcess
from eval_jobs.evaluate.common.plan_folders import ChildEvaluator
from eval_jobs.evaluate.common.protocol import Message, error_of
from eval_jobs.evaluate.common.task_config import evaluate_request, run_folder
from eval_jobs.evaluate.lm_eval.command import LM_EVAL, OUT, check_settings, child_task
from eval_jobs.evaluate.lm_eval.outcomes import Outcomes
from eval_jobs.evaluate.lm_eval.place import installed_version, python_of
from eval_jobs.evaluate.lm_eval.results import read_result
from eval_jobs.host.storage import mapped_storage_errors
from eval_jobs.ports import ShowProgress
from eval_jobs.records.progress import Progress, Stage, Unit
from eval_jobs.types import Benchmark, Endpoint, EvalResult, Program, Suite

CHILD = Path(__file__).parent / "child" / "start.py"
MIN_SILENCE_S = 1800.0
"""Seconds without a message after which a child counts as hung; loading and scoring send none."""


class LmEvalEvaluator(ChildEvaluator):
    """`eval_jobs.ports.Evaluator`. Everything it writes is below `work_dir`."""

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Do nothing: the harness can only start once the endpoint exists."""

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Evaluate one benchmark after the other; see the port."""
        outcomes: list[EvalResult | TrackerError] = []
        for benchmark in suite.benchmarks:
            try:
                with self.held(plan_id, progress):
                    outcomes.append(self._evaluate_one(benchmark, suite, endpoint, plan_id, progress))
            except TrackerError as error:
                outcomes.append(error)
        return tuple(outcomes)

    def _evaluate_one(
        self, benchmark: Benchmark, suite: Suite, endpoint: Endpoint, plan_id: str, progress: ShowProgress
    ) -> EvalResult:
        check_settings(benchmark)
        _demand_planned_version(benchmark)
        began_s = time.monotonic()
        folder = self.work_dir / "runs" / run_folder(benchmark, suite, plan_id)
        with mapped_storage_errors(folder):
            shutil.rmtree(folder / OUT, ignore_errors=True)  # of a run that ended early: only its responses are reused
            (folder / OUT).mkdir(parents=True)
        task = child_task(benchmark, suite, endpoint, folder=folder)
        request: Message = {**evaluate_request(suite, endpoint, [task]), "retry_policy": asdict(self.retry_policy)}
        reply = self._reply(request, progress)
        if reply["type"] != "result":
            raise error_of(reply, logs=f"evaluator log: {self.log_path}")
        found = read_result(folder / OUT, benchmark, suite, Outcomes.read(folder))
        return replace(found, duration_s=time.monotonic() - began_s)

    def _reply(self, request: Message, progress: ShowProgress) -> Message:
        """Run a child to its end; it has stopped when this returns or raises."""
        (task,) = request["tasks"]
        progress(Progress(stage=Stage.EVALUATING, benchmarks=(task["benchmark"],), note="loading"))
        self._child = child = ChildProcess(
            str(python_of(Path(task["command"]))),
            self.work_dir,
            self.log_path,
            offline=task["offline"],
            key=request["api_key_env"],
            program=(str(CHILD),),
        )
        try:
            child.wait_ready()
            for message in child.ask(request, silence_s=MIN_SILENCE_S + 3 * request["timeout_s"]):
                if message["type"] != "progress":
                    return message
                progress(_so_far(message))
        finally:
            self.close()
        raise AssertionError("the child process reported no outcome")


def _demand_planned_version(benchmark: Benchmark) -> None:
    program = benchmark.program or Program(name=LM_EVAL)
    version = installed_version(program.command)
    if version != program.version:
        raise ConfigError(
            f"`{benchmark.name}` was planned with {program.version}, but {program.command} is {version} here",
            hint="install the same version on the watcher's machine and on every worker machine",
        )


def _so_far(message: Message) -> Progress:
    return Progress(
        stage=Stage.EVALUATING,
        benchmarks=(message["benchmark"],),
        done=message["done"],
        total=message["total"],
        unit=Unit.REQUESTS,
    )
