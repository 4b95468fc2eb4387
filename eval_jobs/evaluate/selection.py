"""Selection of the evaluator of each benchmark, by `Benchmark.program`."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.evaluate.lm_eval.command import LM_EVAL
from eval_jobs.ports import Clock, Evaluator, ShowProgress
from eval_jobs.types import Benchmark, Endpoint, EvalResult, Suite

log = logging.getLogger(__name__)

EVALSCOPE = "evalscope"


class EvaluatorByName:
    """`eval_jobs.ports.Evaluator` that passes each benchmark to the evaluator named in its settings.

    Evaluators run one after the other: each of them uses the suite's full concurrency.
    """

    def __init__(self, work_dir: Path, clock: Clock, *, log_name: str) -> None:
        """Create the EvalScope evaluator; the others are opened when a benchmark needs them."""
        self._clock = clock
        self._work_dir = work_dir
        self._log_name = log_name
        self._evaluators: dict[str, Evaluator] = {EVALSCOPE: EvalScopeEvaluator(work_dir, log_name=log_name)}

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Prepare each evaluator with its part of the suite; `evaluate` reports those that cannot be opened."""
        for name, part in _parts(suite):
            try:
                self._evaluator(name).prepare(part, api_key_env=api_key_env)
            except TrackerError as error:
                log.info("cannot prepare evaluator %s: %s", name, error)

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Evaluate each part of the suite; see the port. An evaluator that cannot be opened fails only its part."""
        outcomes: dict[str, EvalResult | TrackerError] = {}
        for name, part in _parts(suite):
            try:
                found = self._evaluator(name).evaluate(part, endpoint, plan_id=plan_id, progress=progress)
            except TrackerError as error:
                found = (error,) * len(part.benchmarks)
            outcomes |= {b.name: outcome for b, outcome in zip(part.benchmarks, found, strict=True)}
        return tuple(outcomes[benchmark.name] for benchmark in suite.benchmarks)

    def kept(self) -> tuple[str, ...]:
        """Return the plans kept by any evaluator, including those opened by an earlier worker."""
        for folder in sorted((self._work_dir / "plugins" / "evaluators").glob("*/")):
            try:
                self._evaluator(folder.name)
            except TrackerError as error:  # uninstalled since then: the user may delete its folder
                log.warning("keeping the files of evaluator %s in %s: %s", folder.name, folder, error)
        return tuple(sorted({plan_id for evaluator in self._evaluators.values() for plan_id in evaluator.kept()}))

    def forget(self, plan_id: str) -> None:
        """Delete what each evaluator keeps of a plan."""
        for evaluator in self._evaluators.values():
            evaluator.forget(plan_id)

    def close(self) -> None:
        """Close all evaluators."""
        for evaluator in self._evaluators.values():
            evaluator.close()

    def _evaluator(self, name: str) -> Evaluator:
        if name not in self._evaluators:
            self._evaluators[name] = self._opened(name)
        return self._evaluators[name]

    def _opened(self, name: str) -> Evaluator:
        if name == LM_EVAL:
            from eval_jobs.evaluate.lm_eval.evaluator import LmEvalEvaluator

            return LmEvalEvaluator(self._work_dir, log_name=self._log_name)
        from eval_jobs.evaluate.plugin_evaluator import PluginEvaluator

        folder = self._work_dir / "plugins" / "evaluators" / name
        return PluginEvaluator(name, folder, self._clock)


def _parts(suite: Suite) -> Iterator[tuple[str, Suite]]:
    """Yield each evaluator and its part of the suite, in the order of their first benchmarks."""
    by_name: dict[str, list[Benchmark]] = {}
    for benchmark in suite.benchmarks:
        name = EVALSCOPE if benchmark.program is None else benchmark.program.name
        by_name.setdefault(name, []).append(benchmark)
    for name, benchmarks in by_name.items():
        yield name, replace(suite, benchmarks=tuple(benchmarks))
