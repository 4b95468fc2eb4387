"""Cost of the checkpoints of a run, for each one and in total. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from eval_jobs.spending import total
from eval_jobs.types import Cost, EvalPlan, EvalRecord
from tracker.domain.best.retention import identity_of
from tracker.domain.records.display import count_text, duration_text, tokens_text
from tracker.domain.records.imported import is_imported
from tracker.domain.verdicts.screening import is_screen


class Asked(StrEnum):
    """Part of the benchmarks that one evaluation covered."""

    WHOLE = "whole"
    SCREEN = "screen"
    """The part that is evaluated first."""
    REST = "rest"
    """The samples that a screening left out."""


@dataclass(frozen=True, kw_only=True)
class CostOfStep:
    """Cost of one evaluation of a checkpoint."""

    step: int
    suite: str
    asked: Asked
    plan_id: str
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """Cost of a run."""

    run_id: str
    checkpoints: tuple[CostOfStep, ...]
    """In the order of the records."""
    total: Cost
    known: int = 0
    """Checkpoints whose results cost nothing: identical weights had been evaluated before."""


def run_costs(run_id: str, records: Iterable[EvalRecord]) -> RunCosts:
    """Return the costs of all records of a run; imported records have none, nor have known results."""
    known = list(records)
    rows = tuple(
        CostOfStep(
            step=r.plan.checkpoint.step,
            suite=r.plan.suite.name,
            asked=asked_by(r.plan),
            plan_id=r.plan.id,
            cost=r.cost,
        )
        for r in known
        if r.cost is not None
    )
    paid = {row.step for row in rows}
    free = {r.plan.checkpoint.step for r in known if not is_imported(r)} - paid
    return RunCosts(run_id=run_id, checkpoints=rows, total=total(row.cost for row in rows), known=len(free))


def asked_by(plan: EvalPlan) -> Asked:
    """Return which part of the benchmarks a plan covers."""
    if plan.suite.part is None:
        return Asked.WHOLE
    if is_screen(plan):
        return Asked.SCREEN
    return Asked.REST


def with_cost_so_far(record: EvalRecord, records: Iterable[EvalRecord]) -> EvalRecord:
    """Return a rest with the cost of all evaluations of its suite and checkpoint so far; any other record unchanged."""
    if asked_by(record.plan) is not Asked.REST or record.cost is None:
        return record
    costs, place = [record.cost], _place_of(record)
    for other in records:
        is_earlier = other.plan.id != record.plan.id and other.finished_at <= record.finished_at
        if is_earlier and other.cost is not None and _place_of(other) == place:
            costs.append(other.cost)
    return replace(record, cost=total(costs))


def cost_headline(costs: RunCosts) -> str:
    """Return `18 checkpoints, 2.4 h, 2.1 GPU h, 3.4 M tokens`; unknown parts are left out."""
    count = count_text(len({row.step for row in costs.checkpoints}), "checkpoint")
    if costs.known:
        count += f" and {costs.known} with known results"
    return ", ".join([count, duration_text(costs.total.wall_s), *_resources(costs.total)])


def cost_text(cost: Cost) -> str:
    """Return `41.0 s: 3.0 s loading, 30.0 s scoring, 8.0 s latency test; 45.2 k tokens`, without empty stages."""
    stages = (
        (cost.loading_s, "loading"),
        (cost.evaluating_s, "scoring"),
        (cost.probing_s, "latency test"),
    )
    spent = [f"{duration_text(seconds)} {name}" for seconds, name in stages if seconds >= MIN_SHOWN_S]
    took = f"{duration_text(cost.wall_s)}{': ' if spent else ''}{', '.join(spent)}"
    return "; ".join(filter(None, (took, ", ".join(_resources(cost)))))


MIN_SHOWN_S = 0.05


def _place_of(record: EvalRecord) -> tuple[str, object]:
    return record.plan.suite.name, identity_of(record.plan.checkpoint)


def _resources(cost: Cost) -> Iterator[str]:
    if cost.gpu_s is not None:
        yield duration_text(cost.gpu_s).replace(" ", " GPU ")
    if cost.cpu_s is not None:
        yield duration_text(cost.cpu_s).replace(" ", " CPU ")
    if cost.input_tokens is not None or cost.output_tokens is not None:
        yield f"{tokens_text((cost.input_tokens or 0) + (cost.output_tokens or 0))} tokens"
