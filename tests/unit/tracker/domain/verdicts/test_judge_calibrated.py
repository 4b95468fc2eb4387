"""Verdicts of runs whose suite was asked twice of one checkpoint."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from eval_jobs.identity import calibration_plan
from eval_jobs.types import EngineInfo, EvalRecord
from tests.unit.tracker.domain.judging import followed, run_of
from tracker.adapters.database.codec import from_json, to_json
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.records.calibration import AskedTwice, Calibration, Fitness
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.verdicts.context import RunContext

N = 200
ENGINE = EngineInfo(name="vllm", version="0.32.1", load_method="cold", load_s=1.0, log="", machine="m")
POLICY = Policy(planned_checkpoints=10)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def served(records: Sequence[EvalRecord], engine: EngineInfo = ENGINE) -> list[EvalRecord]:
    return [replace(record, engine=engine) for record in records]


def calibration(record: EvalRecord, flips: int) -> Calibration:
    """As many samples were lost as gained."""
    asked = AskedTwice(
        benchmark="sums", fingerprint=record.outcomes[0].fingerprint, planned=N, samples=N, flips=flips, other_texts=0,
        squares=float(flips), largest=1.0, first_mean=0.9, second_mean=0.9, p_shift=1.0,
    )  # fmt: skip
    plan = calibration_plan(record.plan.checkpoint, record.plan.suite, record.plan.serve, 1)
    return Calibration(plan=plan, engine=ENGINE, benchmarks=(asked,), started_at=AT, finished_at=AT)


def last(records: Sequence[EvalRecord], *calibrations: Calibration) -> Report:
    return followed(records, POLICY, RunContext(calibrations=calibrations))[-1]


def test_a_verdict_says_what_repetition_does_and_none_does_without_a_calibration() -> None:
    run = served(run_of(*[180] * 6))
    assert {v.repetition for report in followed(run, POLICY) for v in report.verdicts} == {None}
    found = last(run, calibration(run[2], 4)).verdicts[0].repetition
    assert found is not None
    assert (found.flips, found.samples, found.step, found.stale, found.fitness) == (4, N, 300, "", Fitness.UNSURE)


def test_without_flips_a_calibration_changes_no_verdict() -> None:
    run = served(run_of(180, 182, 179, 181, 180, 120, 120, n=N))
    plain, calibrated = last(run), last(run, calibration(run[0], 0))
    bare = tuple(replace(verdict, repetition=None) for verdict in calibrated.verdicts)
    assert replace(calibrated, verdicts=bare) == plain
    assert plain.verdicts[0].word is VerdictWord.REGRESSED


@pytest.mark.parametrize(("now", "expected"), [(180, VerdictWord.INCONCLUSIVE), (100, VerdictWord.REGRESSED)])
def test_a_difference_that_repetition_explains_is_no_finding_and_a_larger_one_is(
    now: int, expected: VerdictWord
) -> None:
    run = served(run_of(*[200] * 8, now, n=N))
    assert last(run).verdicts[0].word is VerdictWord.REGRESSED
    assert last(run, calibration(run[0], 120)).verdicts[0].word is expected


def test_a_stale_calibration_is_shown_and_decides_nothing() -> None:
    run = served(run_of(*[200] * 8, 180, n=N), replace(ENGINE, version="0.33.0"))
    verdict = last(run, calibration(run[0], 120)).verdicts[0]
    assert verdict.word is VerdictWord.REGRESSED
    assert verdict.repetition is not None
    assert verdict.repetition.stale == "engine is vllm 0.33.0, was vllm 0.32.1"


def test_two_checkpoints_differ_only_by_more_than_repetition_makes_them() -> None:
    before, after = served(run_of(200, 190, n=N))
    (plain,) = compare_parts([(before, after)], POLICY, RunNoise()).benchmarks
    noise = RunNoise(calibrations=(calibration(before, 80),))
    (floored,) = compare_parts([(before, after)], POLICY, noise).benchmarks
    assert (plain.word, plain.repetition) == (VerdictWord.REGRESSED, None)
    assert floored.word is VerdictWord.INCONCLUSIVE
    assert floored.repetition is not None
    # 80 of 200 flip: two evaluations differ by sqrt(80) / 200, and these two by 0.05.
    assert floored.comparison.p_worse == pytest.approx(0.13127, abs=1e-5)
    assert floored.comparison.ci_high - floored.comparison.ci_low > plain.comparison.ci_high - plain.comparison.ci_low
    assert (floored.comparison.delta, floored.spread) == (plain.comparison.delta, plain.spread)
    assert floored.comparison.p_worse_items == plain.comparison.p_worse_items


def test_a_model_that_is_only_asked_again_and_again_loses_nothing() -> None:
    """Sampling with a temperature: every checkpoint is the same model, and 30 % of the samples flip."""
    rng = np.random.default_rng(11)
    chance = rng.beta(1.0, 0.5, N)
    for _ in range(6):
        scores = (rng.random((14, N)) < chance).astype(float)
        run = served(run_of(*[row.tolist() for row in scores]))
        flips = int((scores[0] != scores[1]).sum())
        for report in followed(run, POLICY, RunContext(calibrations=(calibration(run[0], flips),))):
            assert report.incidents == ()


def test_a_report_with_a_repetition_is_read_back() -> None:
    run = served(run_of(*[180] * 6))
    report = last(run, calibration(run[0], 4))
    assert from_json(Report, to_json(report)) == report
