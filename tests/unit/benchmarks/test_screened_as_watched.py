"""The simulation of screens asks and finds what the watcher does: the same answers, through the whole of its loop."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from benchmarks.verdicts.screened import watch
from benchmarks.verdicts.series import CHECKPOINTS, Case, Series, simulate
from benchmarks.verdicts.view import ALPHA
from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.screening import Question
from eval_jobs.types import Benchmark, EvalPlan, EvalResult, Outcome, SampleScore, SampleStatus, Screen
from tests.deep import sized
from tests.unit.tracker.app.screening_bench import RUN, SUITE, Bench, screen_of, through
from tracker.domain.records.policy import Policy
from tracker.domain.verdicts.screening import Screening

SIZES = (500, 500)
"""Of the two benchmarks of the suite."""
SCREENING = Screening(screen=Screen(samples=200), every=20, first=12)
END = 44
"""Checkpoints that the run has had."""
NAMES = [benchmark.name for benchmark in SUITE.benchmarks]


@dataclass(kw_only=True)
class Watched(Bench):
    """A watcher whose worker gets the simulated answers."""

    series: Series
    screening: Screening | None = SCREENING

    def start_again(self) -> None:
        super().start_again()
        self.use(replace(self.world, policy=Policy(alpha=ALPHA, planned_checkpoints=CHECKPOINTS)))

    def first_alarms(self) -> set[tuple[int, str]]:
        """Return at which checkpoint of which benchmark a loss was told."""
        return {(place_of(e.opened_step), e.benchmark) for e in self.fakes.history.incidents(RUN)}

    def asked_before(self) -> int:
        """Return how many parts a suspicious whole result has asked of checkpoints before it."""
        steps = [plan.checkpoint.step for plan in self.plans]
        return sum(step < max(steps[:at]) for at, step in enumerate(steps) if at)

    def _outcome(self, plan: EvalPlan, benchmark: Benchmark) -> Outcome:
        scores = self.series.benchmarks[NAMES.index(benchmark.name)].scores[place_of(plan.checkpoint.step)]
        everything = questions_of(scores.size)
        part = plan.suite.part
        chosen = {q.key for q in everything} if part is None else screen_of(everything, part.screen)
        asked = [i for i, q in enumerate(everything) if (q.key in chosen) is not (part is not None and part.is_rest)]
        self.asked.update((plan.checkpoint.step, benchmark.name, everything[i].key) for i in asked)
        return EvalResult(
            benchmark=benchmark.name,
            fingerprint=benchmark_fingerprint(benchmark, plan.suite),
            metric="accuracy",
            samples=tuple(
                SampleScore(
                    sample_id=everything[i].key,
                    subset="default",
                    score=float(scores[i]),
                    status=SampleStatus.SCORED,
                )
                for i in asked
            ),
            duration_s=1.0,
            left_out=scores.size - len(asked),
        )


@cache
def questions_of(size: int) -> tuple[Question, ...]:
    return tuple(Question(key=f"{size} {i}", subset="default") for i in range(size))


def place_of(step: int) -> int:
    return step // 100 - 1


RUNS: list[tuple[int, set[tuple[int, str]]]] = [(15, {(43, NAMES[0])}), (30, set())]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "alarms"), RUNS[: sized(1, 2)])
def test_a_simulated_run_asks_and_tells_what_the_watcher_does(seed: int, alarms: set[tuple[int, str]]) -> None:
    made = simulate(seed, Case(world="real", trend="plateau", plant="drop3"), SIZES)
    series = replace(made, benchmarks=tuple(replace(b, groups=np.zeros_like(b.groups)) for b in made.benchmarks))
    simulated = watch(series, SCREENING, range(SCREENING.first, END))
    bench = Watched(series=series)
    through(bench, 100 * END)
    rests = sum("rest" in kind for kind in bench.kinds())
    assert rests == simulated.loads
    assert bench.asked_before() > 5
    assert sum(bench.asked.values()) == pytest.approx(simulated.asked * END * sum(SIZES))
    assert max(bench.asked.values()) == 1
    first = {(int(flags.argmax()), name) for flags, name in zip(simulated.flags.T, NAMES, strict=True) if flags.any()}
    assert first == alarms
    assert bench.first_alarms() == alarms
