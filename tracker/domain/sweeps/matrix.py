"""From a sweep to plans: every combination of its settings, at every checkpoint and endpoint. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

from eval_jobs.identity import content_hash, make_plan, sweep_plan
from eval_jobs.records.run_scope import is_of
from eval_jobs.types import Benchmark, Checkpoint, CheckpointFormat, EvalPlan, ProbeLoad, ServeSpec, Suite, SweepCell
from tracker.domain.sweeps.types import OtherModel, Setting, Sweep

GENERATION_AXES = ("temperature", "top_p", "top_k", "seed")
FEW_SHOT, MAX_TOKENS, PROMPT = "few_shot", "max_tokens", "prompt"
"""With `GENERATION_AXES`, all axes that a matrix may have."""

Variant = Mapping[str, Setting]
"""A value for every axis."""


def count_variants(axes: Mapping[str, Sequence[Setting]]) -> int:
    """Return the number of combinations, without creating them."""
    return math.prod(len(values) for values in axes.values())


def variants(axes: Mapping[str, Sequence[Setting]]) -> Iterator[Variant]:
    """Yield every combination, the last axis fastest; an empty one if there is no axis."""
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def suite_of(suite: Suite, variant: Variant, prompts: Mapping[str, str]) -> Suite:
    """Return the suite with the settings of `variant`; `prompts` are the prompt templates by name."""
    generation = {axis: variant[axis] for axis in (*GENERATION_AXES, MAX_TOKENS) if axis in variant}
    return replace(
        suite,
        # A varied maximum length overrides those of the benchmarks.
        benchmarks=tuple(_benchmark_of(benchmark, variant, prompts) for benchmark in suite.benchmarks),
        generation=replace(suite.generation, **generation),  # type: ignore[arg-type]
    )


def different_benchmarks(sweep: Sweep) -> tuple[Benchmark, ...]:
    """Return every benchmark in all its variants, to check them before any evaluation."""
    axes = {axis: values for axis, values in sweep.axes.items() if axis in {FEW_SHOT, PROMPT}}
    suites = (suite_of(sweep.suite, variant, sweep.prompts) for variant in variants(axes))
    return tuple(dict.fromkeys(benchmark for suite in suites for benchmark in suite.benchmarks))


def plans_of(sweep: Sweep, checkpoints: Sequence[Checkpoint], *, run: str, due_at: datetime) -> tuple[EvalPlan, ...]:
    """Return the plans of a sweep run: checkpoints in order, then endpoints.

    The first plan of each has the loads. An endpoint may later serve another model under the same name, so it is
    evaluated again in every sweep run. All plans belong to `run`, whose watcher takes over the results, or to one of
    its sub-folders; the checkpoints may be of any runs.
    """
    turn = due_at.astimezone(UTC).isoformat(timespec="seconds")
    own = turn if sweep.again else ""
    plans: list[EvalPlan] = []
    for checkpoint in checkpoints:
        name = f"{checkpoint.run_id}@{checkpoint.step}"
        ours = checkpoint if is_of(checkpoint.run_id, run) else replace(checkpoint, run_id=run)
        plans += _plans_at(sweep, ours, sweep.serve, SweepCell(sweep=sweep.name, target=name, turn=own))
    for other in sweep.endpoints:
        cell = SweepCell(sweep=sweep.name, target=other.name, turn=turn)
        plans += _plans_at(sweep, stand_in(other, run, due_at), other.serve, cell)
    return tuple(plans)


def stand_in(other: OtherModel, run_id: str, asked_at: datetime) -> Checkpoint:
    """Return a placeholder checkpoint for the plans of an external model, without any files."""
    serve = other.serve
    return Checkpoint(
        run_id=run_id,
        step=0,
        uri="",
        source_uri=serve.base_url,
        format=CheckpointFormat.FULL,
        digest=content_hash(["endpoint", serve.base_url, serve.model]),
        ready_at=asked_at,
    )


def _plans_at(sweep: Sweep, checkpoint: Checkpoint, serve: ServeSpec, cell: SweepCell) -> Iterator[EvalPlan]:
    loads: tuple[ProbeLoad, ...] = sweep.loads
    for variant in variants(sweep.axes):
        suite = suite_of(sweep.suite, variant, sweep.prompts)
        named = tuple(
            (axis, f"{value:g}" if isinstance(value, float) else str(value)) for axis, value in variant.items()
        )
        yield sweep_plan(make_plan(checkpoint, suite, serve, loads), replace(cell, variant=named))
        loads = ()


def _benchmark_of(benchmark: Benchmark, variant: Variant, prompts: Mapping[str, str]) -> Benchmark:
    changed = benchmark
    if MAX_TOKENS in variant:
        changed = replace(changed, max_tokens=None)
    if FEW_SHOT in variant:
        changed = replace(changed, few_shot=int(variant[FEW_SHOT]))
    if PROMPT in variant and (text := prompts.get(str(variant[PROMPT]), "")):
        changed = replace(changed, prompt_template=text)
    return changed
