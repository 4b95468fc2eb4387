"""From a sweep to plans: every combination of its settings, at every checkpoint and endpoint. Pure.

variants({"temperature": (0.0, 0.7), "prompt": ("plain", "cot")})      # four
plans_of(sweep, checkpoints, due_at)
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

from eval_jobs.identity import content_hash, make_plan, sweep_plan
from eval_jobs.records.run_scope import is_of
from eval_jobs.types import (
    Benchmark,
    Checkpoint,
    CheckpointFormat,
    EvalPlan,
    ProbeLoad,
    ServeSpec,
    Suite,
    SweepCell,
)
from tracker.domain.sweeps.types import OtherModel, Setting, Sweep

GENERATION_AXES = ("temperature", "top_p", "top_k", "seed")
FEW_SHOT, MAX_TOKENS, PROMPT = "few_shot", "max_tokens", "prompt"
"""With them, all that a matrix may vary."""

Variant = Mapping[str, Setting]
"""A value for every axis."""


def count_variants(axes: Mapping[str, Sequence[Setting]]) -> int:
    """Return how many combinations there are, without making them."""
    return math.prod(len(values) for values in axes.values())


def variants(axes: Mapping[str, Sequence[Setting]]) -> Iterator[Variant]:
    """Yield every combination, the last axis fastest; one without settings where there is no axis."""
    return (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))


def suite_of(suite: Suite, variant: Variant, prompts: Mapping[str, str]) -> Suite:
    """Return the suite as a variant asks it; `prompts` are the texts of the prompts that it may name."""
    generation = {axis: variant[axis] for axis in (*GENERATION_AXES, MAX_TOKENS) if axis in variant}
    return replace(
        suite,
        # What a person varies is what counts, also where a benchmark has a length of its own.
        benchmarks=tuple(_benchmark_of(benchmark, variant, prompts) for benchmark in suite.benchmarks),
        generation=replace(suite.generation, **generation),  # type: ignore[arg-type]
    )


def different_benchmarks(sweep: Sweep) -> tuple[Benchmark, ...]:
    """Return every benchmark as some variant asks it, to be checked before anything is asked."""
    axes = {axis: values for axis, values in sweep.axes.items() if axis in {FEW_SHOT, PROMPT}}
    suites = (suite_of(sweep.suite, variant, sweep.prompts) for variant in variants(axes))
    return tuple(dict.fromkeys(benchmark for suite in suites for benchmark in suite.benchmarks))


def plans_of(sweep: Sweep, checkpoints: Sequence[Checkpoint], *, run: str, due_at: datetime) -> tuple[EvalPlan, ...]:
    """Return everything that a turn asks: checkpoints as they are ordered, then endpoints.

    The first plan of each carries the loads. Whoever runs an endpoint may serve another model tomorrow under the same
    name, so it is asked anew at every turn.

    Args:
        sweep: what is asked.
        checkpoints: of any runs.
        run: whose watcher takes the results over: all plans are counted to it, or to one of its sub-folders.
        due_at: of the turn.
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
    """Return what stands in a plan for a model that is no checkpoint of ours: nothing of it is on a disk."""
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


# --- private


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
