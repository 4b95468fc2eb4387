"""Part of the composition root: what is measured, also by sweeps, with the versions of engine and evaluators."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.files import check_benchmark, read_data_digest, read_items
from eval_jobs.evaluate.data.known_benchmarks import CHOICE
from eval_jobs.evaluate.lm_eval.command import LM_EVAL, check_settings
from eval_jobs.host.plugins import ENGINES, EVALUATORS, find_plugin
from eval_jobs.types import Benchmark, Checkpoint, ServeSpec, Suite
from tracker.config import FIRST, Config
from tracker.config.measuring import OWN_ADAPTERS
from tracker.domain.records.policy import Policy
from tracker.domain.sweeps.matrix import different_benchmarks, stand_in
from tracker.domain.sweeps.types import OtherModel, Sweep
from tracker.wiring.checkpoints import pin_at

log = logging.getLogger(__name__)

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
        questions_of=questions_of,
    )


def sweeps_of(config: Config, suite: Suite, serve: ServeSpec) -> dict[str, Sweep]:
    """Return the sweeps by name, their local data read and checked.

    Raises:
        BadData: a data file is missing or has a broken line, or a prompt does not fit a benchmark.
        UnknownBenchmark: no benchmark of that name exists.
    """
    found = {}
    for schedule in config.schedule:
        own = []
        for one in schedule.benchmark:
            digest = "" if one.data is None else read_data_digest(one.data)
            own.append(benchmark_with_version(one.to_benchmark(data_digest=digest), config.suite.lm_eval))
        sweep = schedule.to_sweep(suite, serve, tuple(own))
        for benchmark in different_benchmarks(sweep):
            if benchmark.program is None:
                check_benchmark(benchmark)
        found[sweep.name] = sweep
    return found


def verdict_policy(config: Config) -> Policy:
    """Return the error rates and thresholds of verdicts; the score of guessing of `choice` comes from its data."""
    policy = config.to_policy()
    return replace(policy, chance={**_guessing_of_choices(config), **policy.chance})


def check_endpoint(other: OtherModel, run: str, now: datetime) -> None:
    """Query the models of a sweep's endpoint, as a worker does, but once and with a short timeout.

    Raises:
        TrackerError: it does not respond, rejects the request, or serves other models.
    """
    from eval_jobs.serve.remote import served_model

    served_model(stand_in(other, run, now), other.serve, is_look=True)


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


def questions_of(benchmark: Benchmark) -> int | None:
    """Return the number of answers that a benchmark over a JSONL file asks for; None: another one."""
    if benchmark.program is not None or benchmark.adapter not in OWN_ADAPTERS:
        return None
    subsets = Counter(item.subset for item in read_items(benchmark))
    limit = benchmark.limit or max(subsets.values())
    return benchmark.repeats * sum(min(subsets[one], limit) for one in benchmark.subsets or subsets)


def _guessing_of_choices(config: Config) -> dict[str, float]:
    """Return the score of guessing of every `choice` benchmark whose data can be read: the mean of 1 / choices."""
    found = {}
    for one in config.benchmark:
        if not one.is_own or one.benchmark != CHOICE:
            continue
        try:
            items = read_items(one.to_benchmark(data_digest=""))
        except BadData as error:  # reported where it is evaluated; results may be shown without the data
            log.debug("score of guessing of %s unknown: %s", one.resolved_name(), error)
            continue
        found[one.resolved_name()] = fmean(1 / len(item.choices) for item in items)
    return found


def _reference(config: Config) -> Checkpoint | Literal["first"] | None:
    setting = config.probe.reference
    if not setting or not config.probe.enabled:
        return None
    if setting == FIRST:
        return "first"
    # Separate from the pins of the run, which are evaluated after a restart.
    return pin_at(config, setting, config.run.name, config.run.state_dir / "reference")
