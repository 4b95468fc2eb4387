"""What a turn will cost, as far as earlier evaluations tell. Pure.

expected = estimate_of(plans, records, asked)
estimate_text(expected)      # 12 evaluations of 3 targets, 4 asked before; about 8.2 min: ...
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from eval_jobs.types import EngineKind, EvalPlan, EvalRecord, EvalResult, ProbeLoad, ProbeResult
from tracker.domain.records.display import count_text, duration_text, names_text
from tracker.domain.sweeps.reuse import plan_without_scores


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What the plans of a turn will take, one after the other."""

    evaluations: int
    targets: int
    asked: int
    """Of the evaluations, those that an earlier turn has made: they cost nothing."""
    own: int = 0
    """Of the others, those whose scores the run's own evaluation has: at most their loads are put on the target."""
    left: int = 0
    """Of all, those for which somebody has to be asked something."""
    loading_s: float
    """Once for each target that is asked something: the next variant finds its weights where they are."""
    evaluating_s: float
    probing_s: float
    unknown: tuple[str, ...]
    """Benchmarks, loads and engines that nothing tells about; the seconds are without them."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.loading_s + self.evaluating_s + self.probing_s


def estimate_of(
    plans: Sequence[EvalPlan], records: Iterable[EvalRecord], asked: Collection[str], own: Collection[str] = ()
) -> Estimate:
    """Return what `plans` will cost.

    Args:
        plans: of a turn.
        records: of earlier evaluations, those of sweeps among them; samples are not looked at.
        asked: ids of plans that have a result already.
        own: ids of plans whose scores the run's own evaluation has.
    """
    known = tuple(records)
    new = [plan for plan in plans if plan.id not in asked]
    whole = [plan_without_scores(plan) if plan.id in own else plan for plan in new]
    todo = [plan for plan in whole if plan.suite.benchmarks or plan.loads]
    first = {_target(plan): plan for plan in reversed(todo)}
    loading = [(f"loading {_target(plan)}", _loading_s(plan, known)) for plan in first.values()]
    # Nobody knows whether an engine runs: the first of them may be a start, the slowest way of loading.
    loading[:1] = [(name, _start_s(plan, known)) for (name, _), plan in zip(loading[:1], first.values(), strict=False)]
    scoring = [(b.name, _scoring_s(plan, b.name, known)) for plan in todo for b in plan.suite.benchmarks]
    probing = [(f"load {load.name}", _probing_s(plan, load, known)) for plan in todo for load in plan.loads]
    parts = (*loading, *scoring, *probing)
    return Estimate(
        evaluations=len(plans),
        targets=len({_target(plan) for plan in plans}),
        asked=len(plans) - len(new),
        own=sum(plan.id in own for plan in new),
        left=len(todo),
        loading_s=sum(seconds or 0.0 for _, seconds in loading),
        evaluating_s=sum(seconds or 0.0 for _, seconds in scoring),
        probing_s=sum(seconds or 0.0 for _, seconds in probing),
        unknown=tuple(dict.fromkeys(name for name, seconds in parts if seconds is None)),
    )


def estimate_text(expected: Estimate) -> str:
    """Return the estimate as a sentence."""
    count = f"{count_text(expected.evaluations, 'evaluation')} of {count_text(expected.targets, 'target')}"
    if expected.asked:
        count += f", {expected.asked} of them made by an earlier turn"
    if expected.own:
        count += f", {expected.own} of them with the scores of the run's own evaluation"
    if not expected.left:
        return f"{count}: nothing is left to ask"
    stages = ((expected.loading_s, "loading"), (expected.evaluating_s, "scoring"), (expected.probing_s, "timing"))
    spent = ", ".join(f"{duration_text(seconds)} {name}" for seconds, name in stages if seconds)
    about = f"about {duration_text(expected.total_s)} ({spent})" if spent else "nothing tells how long they take"
    without = f", without {names_text(expected.unknown)}, of which nothing is known" if expected.unknown else ""
    return f"{count}; {about}{without if spent else ''}"


# --- private


def _target(plan: EvalPlan) -> str:
    return f"step {plan.checkpoint.step}" if plan.sweep is None else plan.sweep.target


def _is_alike(plan: EvalPlan, record: EvalRecord) -> bool:
    """Return whether a record tells how fast the engine of a plan is: of endpoints, only what the same one answered."""
    if plan.serve.engine is EngineKind.REMOTE:
        return record.plan.checkpoint.digest == plan.checkpoint.digest
    return record.plan.serve.engine is plan.serve.engine and record.engine is not None


def _start_s(plan: EvalPlan, records: Iterable[EvalRecord]) -> float | None:
    return max((r.cost.loading_s for r in records if r.cost is not None and _is_alike(plan, r)), default=None)


def _loading_s(plan: EvalPlan, records: Iterable[EvalRecord]) -> float | None:
    return _usual(r.cost.loading_s for r in records if r.cost is not None and _is_alike(plan, r))


def _scoring_s(plan: EvalPlan, benchmark: str, records: Iterable[EvalRecord]) -> float | None:
    whole = (r for r in records if r.plan.suite.part is None and not r.plan.calibration and _is_alike(plan, r))
    results = (o for r in whole for o in r.outcomes if isinstance(o, EvalResult))
    return _usual(o.duration_s for o in results if o.benchmark == benchmark)


def _probing_s(plan: EvalPlan, load: ProbeLoad, records: Iterable[EvalRecord]) -> float | None:
    if load.request_rate is not None:
        return load.requests / load.request_rate
    probes = [p for r in records if _is_alike(plan, r) for p in r.probes if isinstance(p, ProbeResult) and p.completed]
    same = _usual(p.duration_s for p in probes if p.load == load)
    rate = _usual(p.output_tokens_per_s for p in probes)
    # Another load is taken to have as many tokens a second: more at a time give more, so this is rather too long.
    return same if same is not None or not rate else load.requests * load.output_tokens / rate


def _usual(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None
