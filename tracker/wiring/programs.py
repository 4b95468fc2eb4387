"""Part of the composition root: the installed versions of the configured engine and evaluators."""

from dataclasses import replace

from eval_jobs.evaluate.lm_eval.command import LM_EVAL, check_settings
from eval_jobs.host.plugins import ENGINES, EVALUATORS, find_plugin
from eval_jobs.types import Benchmark, ServeSpec, Suite
from tracker.config import Config


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
