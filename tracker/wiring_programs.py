"""A part of the composition root: which version of an engine or an evaluator the settings mean here."""

from __future__ import annotations

from dataclasses import replace

from eval_jobs.plugins import ENGINES, EVALUATORS, find
from eval_jobs.types import Benchmark, ServeSpec, Suite
from tracker.config import Config


def serve_of(config: Config) -> ServeSpec:
    """Return how checkpoints are served, with the version of an engine of another package.

    Raises:
        ConfigError: there is no such engine.
    """
    spec = config.serve.to_spec()
    if spec.program is None:
        return spec
    found = find(ENGINES, spec.program.name)
    return replace(spec, program=replace(spec.program, version=found.origin))


def suite_with_versions(suite: Suite) -> Suite:
    """Return the suite with the versions of its evaluators.

    Raises:
        ConfigError: there is no such evaluator.
    """
    return replace(suite, benchmarks=tuple(map(benchmark_with_version, suite.benchmarks)))


def benchmark_with_version(benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with the version of its evaluator.

    Raises:
        ConfigError: there is no such evaluator.
    """
    program = benchmark.program
    if program is None:
        return benchmark
    found = find(EVALUATORS, program.name)
    return replace(benchmark, program=replace(program, version=found.origin))
