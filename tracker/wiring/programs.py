"""Part of the composition root: what is measured at every checkpoint, with the versions of engine and evaluators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from eval_jobs.evaluate.lm_eval.command import LM_EVAL, check_settings
from eval_jobs.host.plugins import ENGINES, EVALUATORS, find_plugin
from eval_jobs.types import Benchmark, Checkpoint, ServeSpec, Suite
from tracker.config import FIRST, Config
from tracker.wiring.checkpoints import pin_at

if TYPE_CHECKING:
    from tracker.app.world import MeasurementPlan


def serve_of(config: Config) -> ServeSpec:
    """Return how checkpoints are served, with the version of a plugin engine.

    Raises:
        ConfigError: there is no such engine.
    """
    spec = config.serve.to_spec()
    if spec.program is None:
        return spec
    found = find_plugin(ENGINES, spec.program.name)
    return replace(spec, program=replace(spec.program, version=found.origin))


def measurement_of(config: Config, suite: Suite) -> MeasurementPlan:
    """Return what is measured at every checkpoint; a latency reference that is a folder is pinned.

    Raises:
        CheckpointError: that folder is not a complete checkpoint.
        DiskFull, StoreError: it cannot be pinned.
    """
    from tracker.app.world import MeasurementPlan

    return MeasurementPlan(
        suites=(suite,),
        serve=serve_of(config),
        loads=config.probe.to_loads(),
        reference=_reference(config),
        screening=config.suite.screen.to_screening(),
    )


def suite_with_versions(suite: Suite, lm_eval: str) -> Suite:
    """Return the suite with the versions of its evaluators; `lm_eval` is the command of lm-eval.

    Raises:
        ConfigError: there is no such evaluator.
        BadData: the evaluator does not support a setting.
    """
    return replace(suite, benchmarks=tuple(benchmark_with_version(b, lm_eval) for b in suite.benchmarks))


def benchmark_with_version(benchmark: Benchmark, lm_eval: str) -> Benchmark:
    """Return the benchmark with the version of its evaluator; `lm_eval` is the command of lm-eval.

    Raises:
        ConfigError: there is no such evaluator.
        BadData: the evaluator does not support a setting.
    """
    program = benchmark.program
    if program is None:
        return benchmark
    if program.name == LM_EVAL:
        check_settings(benchmark)
        from eval_jobs.evaluate.lm_eval.place import found_command, installed_version

        command = found_command(lm_eval)
        return replace(benchmark, program=replace(program, command=command, version=installed_version(command)))
    found = find_plugin(EVALUATORS, program.name)
    return replace(benchmark, program=replace(program, version=found.origin))


def _reference(config: Config) -> Checkpoint | Literal["first"] | None:
    setting = config.probe.reference
    if not setting or not config.probe.enabled:
        return None
    if setting == FIRST:
        return "first"
    # Separate from the pins of the run, which are evaluated after a restart.
    return pin_at(config, setting, config.run.name, config.run.state_dir / "reference")
