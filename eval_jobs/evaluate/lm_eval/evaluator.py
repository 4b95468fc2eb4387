"""`Evaluator` with lm-evaluation-harness, through its own command line, in whatever environment it is installed.

benchmark -> lm_eval run (asks our relay, which asks the endpoint) -> its files -> scores (lm_eval_results)

One process for each benchmark, one after the other. A run that ends early is begun anew, and told what was answered
before. The command is given by the settings, never by a checkpoint or a task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from eval_jobs.errors import BadData, ConfigError, EvaluateError, EvaluatorDied, TrackerError
from eval_jobs.evaluate.common.child_process import child_environment
from eval_jobs.evaluate.common.plan_folders import forget_plan, kept_plans, lock_path
from eval_jobs.evaluate.common.task_config import run_folder, sampling
from eval_jobs.evaluate.lm_eval.command import Asked, arguments, check_settings, is_chat
from eval_jobs.evaluate.lm_eval.place import installed_version
from eval_jobs.evaluate.lm_eval.relay import Relay
from eval_jobs.evaluate.lm_eval.results import result_of
from eval_jobs.harness.samples import NO_ANSWER
from eval_jobs.host.plan_lock import WAITS, held
from eval_jobs.host.storage import storage_error
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import ShowProgress
from eval_jobs.records.progress import Progress, Stage, Unit
from eval_jobs.types import Benchmark, Endpoint, EvalResult, Program, Suite

log = logging.getLogger(__name__)

POLL_S = 0.2
MIN_SILENCE_S = 1800.0
"""A process that asks nothing for so long hangs; loading and scoring ask nothing."""
LAST_WORDS_S = 20.0
"""For the process to end by itself once the endpoint is gone."""
TAIL_BYTES = 65536
NEEDS_TOKENIZER = "Tokenizer is required for loglikelihood tasks"


class LmEvalEvaluator:
    """`eval_jobs.ports.Evaluator`. Everything it writes lies below `work_dir`."""

    def __init__(self, work_dir: Path, *, log_name: str) -> None:
        """Describe where things go; `log_name` names the log of its processes, by which orphans are known."""
        self.work_dir = work_dir.absolute()
        self._log_path = self.work_dir / "logs" / log_name
        self._process: subprocess.Popen[bytes] | None = None
        self._of_likelihoods: set[tuple[str, str]] = set()
        """Tasks, with the digest of their data, that were found to need a tokenizer."""

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Nothing can be begun before the endpoint is there."""

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Run one benchmark after the other; see the port."""
        outcomes: list[EvalResult | TrackerError] = []
        waiting = Progress(stage=Stage.EVALUATING, note=WAITS)
        for benchmark in suite.benchmarks:
            try:
                with held(lock_path(self.work_dir, plan_id), on_wait=lambda: progress(waiting)):
                    outcomes.append(self._evaluate_one(_Task.of(benchmark, suite, endpoint), plan_id, progress))
            except TrackerError as error:
                outcomes.append(error)
        return tuple(outcomes)

    def kept(self) -> tuple[str, ...]:
        """Return the plans that have a folder; see the port."""
        return kept_plans(self.work_dir)

    def forget(self, plan_id: str) -> None:
        """Delete what is kept of a plan; see the port."""
        forget_plan(self.work_dir, plan_id)

    def close(self) -> None:
        """End the process that runs, and everything it started. Calling it twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # --- private

    def _evaluate_one(self, task: _Task, plan_id: str, progress: ShowProgress) -> EvalResult:
        """Run the harness to its end, with a tokenizer where it says that it needs one: only likelihoods do.

        Raises:
            TrackerError: why there is no result.
        """
        began_s = time.monotonic()
        folder = self.work_dir / "runs" / run_folder(task.benchmark, task.suite, plan_id)
        name = (task.benchmark.adapter, task.benchmark.data_digest)
        known = "" if is_chat(task.benchmark) else task.endpoint.tokenizer
        found = None if known and name in self._of_likelihoods else self._attempt(task, folder, progress)
        if found is None and known:
            self._of_likelihoods.add(name)
            found = self._attempt(task, folder, progress, tokenizer=known)
        if found is None:
            raise EvaluateError(
                f"`{task.benchmark.adapter}` compares likelihoods, and the tokenizer of the model is not known here",
                hint="checkpoints with their tokenizer in their folder have one",
            )
        return replace(found, duration_s=time.monotonic() - began_s)

    def _attempt(self, task: _Task, folder: Path, progress: ShowProgress, *, tokenizer: str = "") -> EvalResult | None:
        """Return what one run of the harness gives, None where it needs a tokenizer and has none.

        Raises:
            TrackerError: why there is no result.
        """
        out = folder / "out"
        try:
            shutil.rmtree(out, ignore_errors=True)  # of a run that ended early: only the answers count
            out.mkdir(parents=True)
        except OSError as error:
            raise storage_error(folder, error) from error
        sent, timeout_s = sampling(task.benchmark, task.suite, task.endpoint), task.suite.request_timeout_s
        with Relay(task.endpoint, folder / "answers.jsonl", sent=sent, timeout_s=timeout_s) as relay:
            progress(Progress(stage=Stage.EVALUATING, benchmarks=(task.benchmark.name,), note="loading"))
            log_size = self._log_path.stat().st_size if self._log_path.exists() else 0
            asked = Asked(base_url=relay.base_url, out=str(out), tokenizer=tokenizer)
            code = self._run_once(task, asked, relay, progress)
            if relay.failure is not None:
                raise relay.failure
            if code == 0:
                relay.check(task.benchmark.name)
                return result_of(out, task.benchmark, task.suite, relay)
        said = _tail(self._log_path, log_size)
        if NEEDS_TOKENIZER in said and not tokenizer:
            return None
        raise self._ended(task, code, said)

    def _run_once(self, task: _Task, asked_as: Asked, relay: Relay, progress: ShowProgress) -> int:
        """Start the process and return its exit code; it is gone when this returns, however it does."""
        command = [task.program.command, *arguments(task.benchmark, task.suite, task.endpoint, asked_as)]
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log_file:
            self._process = process = self._started(command, log_file.fileno(), self._environment(task, relay))
        asked, quiet_s = 0, 0.0
        try:
            while (code := process.poll()) is None:
                threading.Event().wait(POLL_S)
                quiet_s = 0.0 if relay.count != asked else quiet_s + POLL_S
                if relay.count != asked:
                    names, unit = (task.benchmark.name,), Unit.REQUESTS
                    progress(Progress(stage=Stage.EVALUATING, benchmarks=names, done=relay.count, unit=unit))
                asked = relay.count
                if relay.failure is not None and quiet_s > LAST_WORDS_S:
                    return 1
                if quiet_s > MIN_SILENCE_S + 3 * task.suite.request_timeout_s:
                    raise EvaluatorDied("lm_eval asked nothing for long and was ended", hint=f"read {self._log_path}")
            return code
        finally:
            self.close()

    def _started(self, command: list[str], output: int, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(env),
                cwd=self.work_dir,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(
                f"{command[0]} cannot be run: {error.strerror}", hint="correct suite.lm_eval, or install lm-eval"
            ) from error

    def _environment(self, task: _Task, relay: Relay) -> dict[str, str]:
        is_local = task.benchmark.data is not None
        env = child_environment(os.environ, self.work_dir, offline=is_local)
        env |= {"OPENAI_API_KEY": relay.token, "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER": NO_ANSWER}
        env["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")  # it needs nothing of ours, and may be another Python
        return env | ({"HF_DATASETS_OFFLINE": "1"} if is_local else {})

    def _ended(self, task: _Task, code: int, text: str) -> TrackerError:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it wrote nothing")
        where = f"read {self._log_path}"
        if "Tasks not found" in text or "No tasks specified" in text:
            return BadData(
                f"lm-eval has no task `{task.benchmark.adapter}`",
                hint="see `lm_eval ls tasks`; tasks of your own are found in the folder that `data` names",
            )
        if code < 0:
            return EvaluatorDied(f"lm_eval was killed by signal {-code}", hint=f"{where}; its answers are kept")
        return EvaluateError(f"lm_eval ended with exit code {code}: {last}", hint=where)


# --- private


@dataclass(frozen=True, kw_only=True)
class _Task:
    benchmark: Benchmark
    suite: Suite
    endpoint: Endpoint
    program: Program
    fingerprint: str

    @classmethod
    def of(cls, benchmark: Benchmark, suite: Suite, endpoint: Endpoint) -> _Task:
        """Check what can be checked before anything is started.

        Raises:
            BadData: a setting that the harness does not have.
            ConfigError: it is not installed here, or in another version than was planned.
        """
        check_settings(benchmark)
        program = benchmark.program or Program(name="lm-eval")
        version = installed_version(program.command)
        if version != program.version:
            raise ConfigError(
                f"`{benchmark.name}` was planned with {program.version}, and {program.command} is {version} here",
                hint="install the same version on the machine that plans and on every worker",
            )
        fingerprint = benchmark_fingerprint(benchmark, suite)
        return cls(benchmark=benchmark, suite=suite, endpoint=endpoint, program=program, fingerprint=fingerprint)


def _tail(path: Path, begin: int) -> str:
    """Return the end of what was written after `begin`."""
    with path.open("rb") as file:
        file.seek(max(begin, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
