"""Series that no healthy benchmark has: each verdict is a word with a sentence, never an exception."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from eval_jobs.records.imported import Aggregate
from eval_jobs.types import EvalRecord, EvalResult
from tests.unit.tracker.domain.judging import NOW, POLICY, followed, run_of
from tests.unit.tracker.domain.making import Scores, record_of, suite_of
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Report
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

NAN, INF = math.nan, math.inf
N = 200
DOWN = suite_of(["sums"], higher_is_better=False)


def noisy(seed: int, times: float = 1.0) -> list[float]:
    found: list[float] = (times * (np.random.default_rng(seed).random(N) < 0.7)).tolist()
    return found


def with_first(scores: Sequence[float], *first: float) -> list[float]:
    return [*first, *scores[len(first) :]]


def come_and_go(*names: str) -> list[EvalRecord]:
    return [record_of(100 * (i + 1), {name: noisy(i) for name in now}) for i, now in enumerate(names)]


def of_subsets(subsets: int, *counts: int) -> list[EvalRecord]:
    """Two samples a subset; the first `count` samples are right."""
    found = {}
    for count in set(counts):
        (result,) = record_of(1, {"sums": [1.0] * count + [0.0] * (2 * subsets - count)}).results
        samples = (replace(sample, subset=f"s{i // 2}") for i, sample in enumerate(result.samples))
        found[count] = tuple(samples)
    run = run_of(*[[] for _ in counts])
    return [_with(record, samples=found[count]) for record, count in zip(run, counts, strict=True)]


def means(*values: tuple[float, float | None], higher_is_better: bool = True) -> list[EvalRecord]:
    suite = suite_of(["sums"], measured_with=(("metric", "acc"),), higher_is_better=higher_is_better)
    run = run_of(*[[] for _ in values], suite=suite)
    return [
        _with(record, aggregate=Aggregate(mean=mean, stderr=stderr, samples=N))
        for record, (mean, stderr) in zip(run, values, strict=True)
    ]


def _with(record: EvalRecord, **change: object) -> EvalRecord:
    (result,) = record.results
    return replace(record, outcomes=(replace(result, **change),))  # type: ignore[arg-type]


def judged_means(run: Sequence[EvalRecord]) -> list[Report]:
    return [
        judge(record, RunScores(run_id="run"), RunContext(records=tuple(run[:at])), POLICY, now=NOW)
        for at, record in enumerate(run)
    ]


SIX: list[Scores] = [noisy(seed) for seed in range(6)]

CASES: dict[str, tuple[Callable[[], list[EvalRecord]], str]] = {
    "one checkpoint": (lambda: run_of(noisy(1)), "first"),
    "one sample": (lambda: run_of([1.0], [0.0], [1.0]), "incomparable"),
    "no samples": (lambda: run_of([], []), "missing"),
    "constant": (lambda: run_of(*[[0.5] * N] * 6), "equivalent"),
    "all 0": (lambda: run_of(*[[0.0] * N] * 6), "equivalent"),
    "all 1": (lambda: run_of(*[[1.0] * N] * 6), "equivalent"),
    "all 1, then all 0": (lambda: run_of(*[[1.0] * N] * 5, [0.0] * N), "regressed"),
    "all 0, then all 1": (lambda: run_of(*[[0.0] * N] * 5, [1.0] * N), "improved"),
    "some NaN": (lambda: run_of(*(with_first(noisy(i), NAN, NAN) for i in range(6))), "inconclusive"),
    "half NaN": (lambda: run_of(*(with_first(noisy(i), *[NAN] * (N // 2)) for i in range(6))), "missing"),
    "all NaN": (lambda: run_of(*SIX, [NAN] * N), "missing"),
    "infinite": (lambda: run_of(*(with_first(noisy(i), INF, -INF) for i in range(6))), "inconclusive"),
    "above 1": (lambda: run_of(*[[7.3] * N] * 4), "inconclusive"),
    "below 0": (lambda: run_of(*[[-2.0] * N] * 4), "inconclusive"),
    "percentages": (lambda: run_of(*(noisy(i, 100.0) for i in range(6))), "inconclusive"),
    "percentages, then 0": (lambda: run_of(*(noisy(i, 100.0) for i in range(6)), [0.0] * N), "regressed"),
    "huge": (lambda: run_of(*(noisy(i, 1e300) for i in range(6))), "missing"),
    "tiny": (lambda: run_of(*(noisy(i, 1e-300) for i in range(6))), "equivalent"),
    "lower is better, falls": (lambda: run_of(*SIX, [0.0] * N, suite=DOWN), "improved"),
    "lower is better, rises": (lambda: run_of(*SIX, [1.0] * N, suite=DOWN), "regressed"),
    "lower is better, all 0": (lambda: run_of(*[[0.0] * N] * 6, suite=DOWN), "equivalent"),
    "benchmarks come and go": (lambda: come_and_go("a", "b", "ab", "c", "abc", "b"), "inconclusive"),
    "a new benchmark": (lambda: come_and_go("a", "a", "b"), "first"),
    "10,000 subsets": (lambda: of_subsets(10_000, 20_000, 20_000, 15_000), "regressed"),
    "mean is constant": (lambda: means(*[(0.5, 0.01)] * 6), "inconclusive"),
    "mean is always 0": (lambda: means(*[(0.0, 0.0)] * 6), "inconclusive"),
    "mean is always 1, down": (lambda: means(*[(1.0, 0.0)] * 6, higher_is_better=False), "inconclusive"),
    "mean is NaN": (lambda: means((0.5, 0.1), (NAN, 0.1)), "inconclusive"),
    "mean is 50": (lambda: means(*[(50.0, 1.0)] * 3), "inconclusive"),
    "stderr is NaN": (lambda: means(*[(0.5, NAN)] * 3), "inconclusive"),
    "stderr is unknown": (lambda: means(*[(0.5, None)] * 3), "inconclusive"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_a_verdict_is_a_word_with_a_sentence(name: str) -> None:
    make, word = CASES[name]
    run = make()
    is_of_means = any(isinstance(one, EvalResult) and one.aggregate for record in run for one in record.outcomes)
    reports = judged_means(run) if is_of_means else followed(run)
    assert reports[-1].verdicts[0].word == word
    for report in reports:
        for verdict in (*report.verdicts, *report.findings):
            text = reason_text(verdict)
            assert text
            assert not {"nan", "inf", "None"} & set(text.replace(",", " ").split()), text
