"""Adds up the cost of one plan: time by stage, tokens, GPU or CPU seconds."""

from collections.abc import Iterable
from typing import TypeVar

from eval_jobs.ports import Clock, Engine
from eval_jobs.records.progress import Stage
from eval_jobs.types import Cost, EngineInfo, EvalResult, Outcome

Number = TypeVar("Number", int, float)


def known_sum(parts: Iterable[Number | None]) -> Number | None:
    """Return the sum of the known values, None if there is none."""
    known = [part for part in parts if part is not None]
    if known:
        return sum(known)
    return None


def total(costs: Iterable[Cost]) -> Cost:
    """Return the sum of the known values; a field that is None in all costs stays None."""
    all_of = list(costs)
    return Cost(
        loading_s=sum(cost.loading_s for cost in all_of),
        evaluating_s=sum(cost.evaluating_s for cost in all_of),
        probing_s=sum(cost.probing_s for cost in all_of),
        input_tokens=known_sum(cost.input_tokens for cost in all_of),
        output_tokens=known_sum(cost.output_tokens for cost in all_of),
        gpu_s=known_sum(cost.gpu_s for cost in all_of),
        cpu_s=known_sum(cost.cpu_s for cost in all_of),
    )


class Spending:
    """The cost of one plan so far."""

    def __init__(self, clock: Clock, engine: Engine) -> None:
        self._clock = clock
        self._engine = engine
        self._since_s = clock.monotonic_s()
        self._cpu_s = engine.used_cpu_s()
        self._seconds = dict.fromkeys(Stage, 0.0)

    def end(self, stage: Stage) -> None:
        """Count the time since the end of the previous stage as `stage`."""
        now_s = self._clock.monotonic_s()
        self._seconds[stage] += now_s - self._since_s
        self._since_s = now_s

    def cost(self, outcomes: Iterable[Outcome], info: EngineInfo | None) -> Cost:
        """Return the total cost; `info` is None if no engine served the checkpoint."""
        results = [outcome for outcome in outcomes if isinstance(outcome, EvalResult)]
        wall_s = sum(self._seconds.values())
        gpus = 0 if info is None else info.gpus
        return Cost(
            loading_s=self._seconds[Stage.LOADING],
            evaluating_s=self._seconds[Stage.EVALUATING],
            probing_s=self._seconds[Stage.PROBING],
            input_tokens=known_sum(result.input_tokens for result in results),
            output_tokens=known_sum(result.output_tokens for result in results),
            gpu_s=gpus * wall_s if gpus else None,
            cpu_s=self._used_cpu_s(),
        )

    def _used_cpu_s(self) -> float | None:
        """Return the CPU seconds; None also for 0: then the tracker did not start the engine that served the plan."""
        now_s = self._engine.used_cpu_s()
        if now_s is None:
            return None
        return max(0.0, now_s - (self._cpu_s or 0.0)) or None
