"""Carries out a plan in one pass, or a calibration in two, which shows what repeating an evaluation changes.

Each pass is a complete evaluation that starts with serving the checkpoint: an engine that already serves it at least
clears its prefix cache. An interrupted pass continues with the missing samples. No answer of the first pass is reused
in the second, because their seeds differ.
"""

from dataclasses import replace

from eval_jobs.errors import Incomparable
from eval_jobs.identity import second_pass
from eval_jobs.ports import ShowProgress
from eval_jobs.run import Tools, run_plan
from eval_jobs.spending import total
from eval_jobs.types import BenchmarkFailure, EngineInfo, EvalPlan, EvalRecord


def run_asked(plan: EvalPlan, *, tools: Tools, progress: ShowProgress) -> EvalRecord:
    """Carry out `plan` like `run_plan`, but a calibration twice.

    Raises:
        Incomparable: the second pass ran on another engine, another version of it or another machine.
    """
    if not plan.calibration:
        return run_plan(plan, tools=tools, progress=progress)
    first = run_plan(plan, tools=tools, progress=lambda part: progress(replace(part, pass_number=1)))
    if all(isinstance(outcome, BenchmarkFailure) for outcome in first.outcomes):
        return first  # there is nothing to repeat
    again = replace(plan, suite=second_pass(plan.suite))
    second = run_plan(again, tools=tools, progress=lambda part: progress(replace(part, pass_number=2)))
    _check_same(first.engine, second.engine)
    cost = total(cost for cost in (first.cost, second.cost) if cost is not None)
    outcomes = (*first.outcomes, *second.outcomes)
    return replace(first, outcomes=outcomes, finished_at=second.finished_at, cost=cost)


def _check_same(first: EngineInfo | None, second: EngineInfo | None) -> None:
    """Check that both passes used the same engine. If one did not start, its failures contain the reason."""
    if first is None or second is None:
        return
    if (first.name, first.version, first.machine) != (second.name, second.version, second.machine):
        raise Incomparable(
            f"calibration passes ran on different engines: {first.name} {first.version}, then {second.name} "
            f"{second.version}{'' if first.machine == second.machine else ' on another machine'}",
            hint="run `tracker calibrate` again with one engine on one machine",
        )
