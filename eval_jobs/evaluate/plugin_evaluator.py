"""An evaluator from another package, checked against the port: its exceptions become outcomes that name it."""

import math
from pathlib import Path

from eval_jobs.errors import EvaluateError, TrackerError
from eval_jobs.host.plugins import EVALUATORS, find_plugin
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import Clock, Evaluator, ShowProgress
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.run import check_accounted
from eval_jobs.types import Benchmark, Endpoint, EvalResult, Suite


class PluginEvaluator:
    """`eval_jobs.ports.Evaluator` that wraps one from another package."""

    def __init__(self, name: str, work_dir: Path, clock: Clock) -> None:
        """Find and open the plugin; raise ConfigError if it is not installed or cannot be opened."""
        self._found = find_plugin(EVALUATORS, name)
        self._evaluator: Evaluator = self._found.open(Evaluator, work_dir, clock)

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Prepare the plugin; a failure is only logged."""
        self._found.quietly(EvaluateError, lambda: self._evaluator.prepare(suite, api_key_env=api_key_env), None)

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Evaluate with the plugin; see the port. An invalid outcome is replaced by an error."""
        try:
            for benchmark in suite.benchmarks:
                if benchmark.program is not None:
                    self._found.check_version(benchmark.program.version)
            with self._found.blamed(EvaluateError):
                found = tuple(self._evaluator.evaluate(suite, endpoint, plan_id=plan_id, progress=_fields_of(progress)))
            if len(found) != len(suite.benchmarks):
                raise self._refusal(f"returned {len(found)} outcomes for {len(suite.benchmarks)} benchmarks")
        except TrackerError as error:
            return (error,) * len(suite.benchmarks)
        return tuple(self._checked(o, b, suite) for o, b in zip(found, suite.benchmarks, strict=True))

    def kept(self) -> tuple[str, ...]:
        """Return the plans that the plugin keeps; () if it fails, which only costs disk space."""
        return self._found.quietly(EvaluateError, lambda: tuple(map(str, self._evaluator.kept())), ())

    def forget(self, plan_id: str) -> None:
        """Delete what the plugin keeps of a plan; a failure is only logged."""
        self._found.quietly(EvaluateError, lambda: self._evaluator.forget(plan_id), None)

    def close(self) -> None:
        """Close the plugin; a failure is only logged."""
        self._found.quietly(EvaluateError, self._evaluator.close, None)

    def _checked(
        self, outcome: EvalResult | TrackerError, benchmark: Benchmark, suite: Suite
    ) -> EvalResult | TrackerError:
        if isinstance(outcome, TrackerError):
            return outcome
        try:
            result = self._found.checked(EvalResult, outcome, f"result of `{benchmark.name}`", EvaluateError)
        except EvaluateError as error:
            return error
        problem = _problem(result, benchmark, suite)
        if problem:
            return self._refusal(f"returned an invalid result for `{benchmark.name}`: {problem}")
        return result

    def _refusal(self, what: str) -> EvaluateError:
        return EvaluateError(f"{self._found} {what}", hint="report this bug to its author")


def _fields_of(progress: ShowProgress) -> ShowProgress:
    """Return a callback that also accepts plain text, which is shown as a note without counts."""

    def show(said: Progress | str) -> None:
        progress(said if isinstance(said, Progress) else Progress(stage=Stage.EVALUATING, note=str(said)))

    return show


def _problem(result: EvalResult, benchmark: Benchmark, suite: Suite) -> str:
    """Return what is wrong with a result whose fields have valid types; empty if nothing is. Pure."""
    try:
        check_accounted(result)
    except EvaluateError as error:
        return error.message
    beyond = [s.score for s in result.samples if s.score is not None and not 0 <= s.score <= 1]
    if (result.benchmark, result.fingerprint) != (benchmark.name, benchmark_fingerprint(benchmark, suite)):
        return f"wrong name `{result.benchmark}` or wrong fingerprint"
    if beyond:
        return f"score {beyond[0]:g} is not between 0 and 1"
    if result.higher_is_better is not benchmark.higher_is_better:
        return f"higher_is_better = {result.higher_is_better} contradicts the settings"
    if math.isfinite(result.duration_s):
        return ""
    return f"invalid duration {result.duration_s} s"
