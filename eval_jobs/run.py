"""Carry out one plan: serve the checkpoint, score every benchmark, time every load.

    record = run_plan(plan, tools=tools, progress=print)

With a reference, the loads are timed in four blocks: candidate A, reference B, B, A. A machine that becomes slower or
faster at a steady rate then affects both sides equally. The scores and the first A share one serving, both B the
second, and the last A needs a third: two more than without a reference.
Failures become values in the record; only bugs and interrupts leave this module as exceptions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar

from eval_jobs.errors import EndpointFailed, EvaluateError, EvaluatorDied, ProbeError, TrackerError
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.ports import Clock, Engine, Evaluator, Note, Prober, ShowProgress
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.spending import Spending
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Checkpoint,
    Endpoint,
    EngineKind,
    EvalPlan,
    EvalRecord,
    EvalResult,
    Outcome,
    ProbeFailure,
    ProbeLoad,
    ProbeOutcome,
    ProbeResult,
    ReferenceOutcome,
    ReferenceProbe,
    RequestTiming,
    SampleScore,
    SampleStatus,
)

_CONSEQUENCES = (EndpointFailed.code, EvaluatorDied.code, ProbeError.code)
"""Errors of a measurement whose engine has died."""

Found = TypeVar("Found", Outcome, ProbeOutcome)

Blocks = tuple[ProbeOutcome, ProbeOutcome, ProbeOutcome, ProbeOutcome]
"""Outcomes of one load in the order candidate, reference, reference, candidate."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The ports that a worker uses."""

    engine: Engine
    evaluator: Evaluator
    prober: Prober
    clock: Clock


def run_plan(plan: EvalPlan, *, tools: Tools, progress: ShowProgress) -> EvalRecord:
    """Carry out `plan` and return an outcome for every benchmark and load, with the reason for each failure."""
    started_at = tools.clock.now()
    spending = Spending(tools.clock, tools.engine)
    loading = noted(Stage.LOADING, progress)
    loading("loading the checkpoint")
    is_measured = False  # until then, an error is one of starting the engine, later one of its end
    is_ours = plan.serve.engine is not EngineKind.REMOTE  # no key is needed then
    tools.evaluator.prepare(plan.suite, api_key_env="" if is_ours else plan.serve.api_key_env)
    try:
        with tools.engine.serving(plan.checkpoint, plan.serve, progress=loading) as endpoint:
            spending.end(Stage.LOADING)
            outcomes = evaluate_all(plan, endpoint, tools.evaluator, progress)
            spending.end(Stage.EVALUATING)
            probes = probe_all(plan, endpoint, tools.prober, progress)
            is_measured = True
    except TrackerError as error:
        if not is_measured:
            spending.end(Stage.LOADING)
            failed = record_of_failure(plan, error, started_at=started_at, finished_at=tools.clock.now())
            return replace(failed, cost=spending.cost((), None))
        outcomes = tuple(_because(error, outcome) for outcome in outcomes)
        probes = tuple(_because(error, probe) for probe in probes)
    reference_probes = probe_reference(plan, probes, tools=tools, progress=progress)
    spending.end(Stage.PROBING)
    return EvalRecord(
        plan=plan,
        outcomes=outcomes,
        probes=probes,
        reference_probes=reference_probes,
        engine=endpoint.info,
        started_at=started_at,
        finished_at=tools.clock.now(),
        cost=spending.cost(outcomes, endpoint.info),
    )


def noted(stage: Stage, progress: ShowProgress) -> Note:
    """Return a callback that shows a text as progress in `stage`; numbers in the text are not interpreted."""
    return lambda note: progress(Progress(stage=stage, note=note))


def evaluate_all(
    plan: EvalPlan, endpoint: Endpoint, evaluator: Evaluator, progress: ShowProgress
) -> tuple[Outcome, ...]:
    """Score all benchmarks concurrently; a failure of one is a value and does not affect the others."""
    found = evaluator.evaluate(plan.suite, endpoint, plan_id=plan.id, progress=progress)
    return tuple(accounted(b, plan, outcome) for b, outcome in zip(plan.suite.benchmarks, found, strict=True))


def accounted(benchmark: Benchmark, plan: EvalPlan, found: EvalResult | TrackerError) -> Outcome:
    """Return the outcome for the record: the result if `check_accounted` accepts it, else a failure."""
    if isinstance(found, TrackerError):
        return _benchmark_failure(benchmark, plan, found)
    try:
        check_accounted(found)
    except EvaluateError as error:
        return _benchmark_failure(benchmark, plan, error)
    return found


def check_accounted(result: EvalResult) -> None:
    """Check that there are samples, each present once, with a score if and only if its status requires one.

    Raises:
        EvaluateError: the check failed; the result is unusable.
    """
    seen = {(sample.sample_id, sample.repeat) for sample in result.samples}
    odd = [sample for sample in result.samples if not _is_plausible(sample)]
    if odd:
        raise EvaluateError(
            f"{len(odd)} of {len(result.samples)} samples of `{result.benchmark}` have a status that "
            f"contradicts their score; first: {odd[0].status} with score {odd[0].score}",
            hint="report this bug to the author of the evaluator",
        )
    if not seen or len(seen) != len(result.samples):
        raise EvaluateError(
            f"`{result.benchmark}` has {len(result.samples)} samples, {len(seen)} of them unique",
            hint="report this bug to the author of the evaluator",
        )


def probe_all(plan: EvalPlan, endpoint: Endpoint, prober: Prober, progress: ShowProgress) -> tuple[ProbeOutcome, ...]:
    """Time every load of the plan."""
    return tuple(probe_one(load, endpoint, prober, progress) for load in plan.loads)


def probe_one(load: ProbeLoad, endpoint: Endpoint, prober: Prober, progress: ShowProgress) -> ProbeOutcome:
    """Time one load; a failure is a value."""
    noted(Stage.PROBING, progress)(f"measuring latency, load {load.name}")
    try:
        return prober.probe(endpoint, load)
    except TrackerError as error:
        return _probe_failure(load, error)


def probe_reference(
    plan: EvalPlan, first: Sequence[ProbeOutcome], *, tools: Tools, progress: ShowProgress
) -> tuple[ReferenceOutcome, ...]:
    """Time the reference twice and the checkpoint again, and pair them with `first`; return one outcome for each load.

    Without a reference: (). If a side cannot be served or timed, each affected load gets a failure.
    """
    if plan.reference is None:
        return ()
    failures = tuple(outcome for outcome in first if isinstance(outcome, ProbeFailure))
    if len(failures) == len(first):
        return failures  # nothing is left to compare, so nothing is served for it
    loading = noted(Stage.LOADING, progress)
    try:
        loading(f"loading the latency reference, step {plan.reference.step}")
        with tools.engine.serving(plan.reference, plan.serve, progress=loading) as endpoint:
            second = probe_all(plan, endpoint, tools.prober, progress)
            third = probe_all(plan, endpoint, tools.prober, progress)
        loading("loading the checkpoint again")
        with tools.engine.serving(plan.checkpoint, plan.serve, progress=loading) as endpoint:
            fourth = probe_all(plan, endpoint, tools.prober, progress)
    except TrackerError as error:
        return tuple(_probe_failure(load, error) for load in plan.loads)
    return tuple(pair_blocks(blocks, plan.reference) for blocks in zip(first, second, third, fourth, strict=True))


def pair_blocks(blocks: Blocks, reference: Checkpoint) -> ReferenceOutcome:
    """Pair the first blocks and the second blocks of both sides by position; return the first failure if any. Pure."""
    results = []
    for block in blocks:
        if isinstance(block, ProbeFailure):
            return block
        results.append(block)
    first, second = _pairs(results[0], results[1]), _pairs(results[3], results[2])
    pairs = (*first, *second)
    load = results[0].load
    return ReferenceProbe(
        load=load,
        reference_digest=reference.digest,
        reference_step=reference.step,
        candidate=tuple(candidate for candidate, _ in pairs),
        reference=tuple(reference for _, reference in pairs),
        first_pairs=len(first),
        dropped=2 * load.requests - len(pairs),
    )


def record_of_failure(
    plan: EvalPlan, error: TrackerError, *, started_at: datetime, finished_at: datetime
) -> EvalRecord:
    """Build the record of a plan that could not be served: every outcome contains the reason."""
    return EvalRecord(
        plan=plan,
        outcomes=tuple(_benchmark_failure(b, plan, error) for b in plan.suite.benchmarks),
        probes=tuple(_probe_failure(load, error) for load in plan.loads),
        reference_probes=tuple(_probe_failure(load, error) for load in plan.loads if plan.reference is not None),
        engine=None,
        started_at=started_at,
        finished_at=finished_at,
    )


def _is_plausible(sample: SampleScore) -> bool:
    if sample.status in (SampleStatus.SCORED, SampleStatus.TRUNCATED):
        return sample.score is not None and math.isfinite(sample.score)
    return sample.score is None


def _pairs(candidate: ProbeResult, reference: ProbeResult) -> list[tuple[RequestTiming, RequestTiming]]:
    other = {timing.position: timing for timing in reference.requests}
    return [(timing, other[timing.position]) for timing in candidate.requests if timing.position in other]


def _because(died: TrackerError, found: Found) -> Found:
    """Return a consequence of the engine's end with that as its reason, still retryable, anything else unchanged."""
    if isinstance(found, BenchmarkFailure | ProbeFailure) and found.code in _CONSEQUENCES:
        return replace(found, code=died.code, message=died.message, hint=died.hint)
    return found


def _benchmark_failure(benchmark: Benchmark, plan: EvalPlan, error: TrackerError) -> BenchmarkFailure:
    return BenchmarkFailure(
        benchmark=benchmark.name,
        fingerprint=benchmark_fingerprint(benchmark, plan.suite),
        code=error.code,
        message=error.message,
        hint=error.hint,
        retryable=error.retryable,
    )


def _probe_failure(load: ProbeLoad, error: TrackerError) -> ProbeFailure:
    return ProbeFailure(load=load, code=error.code, message=error.message, hint=error.hint)
