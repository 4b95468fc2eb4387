"""Estimated cost of a sweep run, from earlier evaluations. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from eval_jobs.types import EngineKind, EvalPlan, EvalRecord, ProbeLoad, ProbeResult
from tracker.domain.records.display import count_text, duration_text, names_text
from tracker.domain.sweeps.reuse import plan_without_scores


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the plans of a sweep run will take, one after the other."""

    evaluations: int
    targets: int
    asked: int
    """Of the evaluations, those already done by an earlier sweep run: they cost nothing."""
    own: int = 0
    """Of the others, those that reuse scores of the run's own evaluation: at most their latency is measured."""
    left: int = 0
    """Of all, those for which something is left to evaluate or measure."""
    loading_s: float
    """Once for each target with something left: the next variant uses the loaded weights."""
    evaluating_s: float
    probing_s: float
    unknown: tuple[str, ...]
    """Benchmarks, loads and loadings of targets without earlier timings; the seconds exclude them."""

    @property
    def total_s(self) -> float:
        """Sum of all stages."""
        return self.loading_s + self.evaluating_s + self.probing_s


def estimate_of(
    plans: Sequence[EvalPlan], records: Iterable[EvalRecord], asked: Collection[str], own: Collection[str] = ()
) -> Estimate:
    """Return the estimated cost of `plans` from earlier evaluations, including those of sweeps; samples are not used.

    `asked` are IDs of plans that already have a result, `own` of those whose scores the run's own evaluation has.
    """
    new = [plan for plan in plans if plan.id not in asked]
    known = [plan for plan in new if plan.id in own]
    todo: list[EvalPlan] = []
    for plan in new:
        rest = plan_without_scores(plan) if plan.id in own else plan
        if rest.suite.benchmarks or rest.loads:
            todo.append(rest)
    earlier = tuple(records)
    unknown: dict[str, None] = {}
    return Estimate(
        evaluations=len(plans),
        targets=len(set(map(_target, plans))),
        asked=len(plans) - len(new),
        own=len(known),
        left=len(todo),
        loading_s=_sum_s(_loadings(todo, earlier), unknown),
        evaluating_s=_sum_s(_evaluations(todo, earlier), unknown),
        probing_s=_sum_s(_probings(todo, earlier), unknown),
        unknown=tuple(unknown),
    )


def estimate_text(expected: Estimate) -> str:
    """Return `12 evaluations of 3 targets, 4 already done by an earlier sweep run; about 8.2 min (8.2 min scoring)`."""
    count = f"{count_text(expected.evaluations, 'evaluation')} of {count_text(expected.targets, 'target')}"
    if expected.asked:
        count += f", {expected.asked} already done by an earlier sweep run"
    if expected.own:
        count += f", {expected.own} reusing scores from the evaluation of the run"
    if not expected.left:
        return f"{count}: nothing left to evaluate"
    stages = ((expected.loading_s, "loading"), (expected.evaluating_s, "scoring"), (expected.probing_s, "latency test"))
    spent = ", ".join(f"{duration_text(seconds)} {name}" for seconds, name in stages if seconds)
    about = f"about {duration_text(expected.total_s)} ({spent})" if spent else "duration unknown"
    without = f", excluding {names_text(expected.unknown)} (no timings yet)" if expected.unknown else ""
    return f"{count}; {about}{without if spent else ''}"


_Named = Iterator[tuple[str, float | None]]
"""Names and seconds; None: there are no timings."""


def _sum_s(parts: _Named, unknown: dict[str, None]) -> float:
    """Return the sum of what is known, and add the names of the rest to `unknown`."""
    total_s = 0.0
    for name, seconds in parts:
        if seconds is None:
            unknown[name] = None
        else:
            total_s += seconds
    return total_s


def _loadings(plans: Sequence[EvalPlan], records: Sequence[EvalRecord]) -> _Named:
    for at, (target, plan) in enumerate({_target(plan): plan for plan in reversed(plans)}.items()):
        took = [r.cost.loading_s for r in records if r.cost is not None and _is_alike(plan, r)]
        # An engine may not be running: the first load may be a start, the slowest one.
        yield f"loading {target}", _usual(took) if at else max(took, default=None)


def _evaluations(plans: Sequence[EvalPlan], records: Sequence[EvalRecord]) -> _Named:
    for plan in plans:
        for benchmark in plan.suite.benchmarks:
            yield benchmark.name, _usual(_scorings_s(plan, benchmark.name, records))


def _probings(plans: Sequence[EvalPlan], records: Sequence[EvalRecord]) -> _Named:
    for plan in plans:
        for load in plan.loads:
            yield f"load {load.name}", _probing_s(plan, load, records)


def _target(plan: EvalPlan) -> str:
    if plan.sweep is None:
        return f"step {plan.checkpoint.step}"
    return plan.sweep.target


def _is_alike(plan: EvalPlan, record: EvalRecord) -> bool:
    """Return whether `record` has timings for the engine of `plan`: of the same kind, or of the same endpoint."""
    if plan.serve.engine is EngineKind.REMOTE:
        return record.plan.checkpoint.digest == plan.checkpoint.digest
    return record.plan.serve.engine is plan.serve.engine and record.engine is not None


def _scorings_s(plan: EvalPlan, benchmark: str, records: Iterable[EvalRecord]) -> Iterator[float]:
    for record in records:
        is_whole = record.plan.suite.part is None and not record.plan.calibration
        if is_whole and _is_alike(plan, record):
            yield from (result.duration_s for result in record.results if result.benchmark == benchmark)


def _probing_s(plan: EvalPlan, load: ProbeLoad, records: Iterable[EvalRecord]) -> float | None:
    if load.request_rate is not None:
        return load.requests / load.request_rate
    probes: list[ProbeResult] = []
    for record in records:
        if _is_alike(plan, record):
            probes += (probe for probe in record.probes if isinstance(probe, ProbeResult) and probe.completed)
    same = _usual(p.duration_s for p in probes if p.load == load)
    rate = _usual(p.output_tokens_per_s for p in probes)
    if same is not None or not rate:
        return same
    # Assume the same tokens per second for other loads: more concurrency gives more, so this is rather too long.
    return load.requests * load.output_tokens / rate


def _usual(values: Iterable[float]) -> float | None:
    found = list(values)
    if found:
        return median(found)
    return None
