"""Whole runs: chance alone raises no alarm, a planted loss is found, and real answers are judged by their counts."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from tests.records import forgetting_run
from tests.requires import shared_data
from tests.unit.tracker.domain.judging import followed, judged, run_of
from tests.unit.tracker.domain.making import record_of
from tests.unit.tracker.domain.regression.tables import flipping
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.scores.matrix import FloatArray

NAMES = tuple(f"b{i}" for i in range(5))
LONG = Policy(planned_checkpoints=30)
LOSSES = (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN)


def jittery(seed: int, *, checkpoints: int = 30, n: int = 500, tau: float = 0.005) -> dict[str, FloatArray]:
    """Healthy benchmarks: samples flip by chance, and each checkpoint as a whole is a little better or worse."""
    rng = np.random.default_rng(seed)
    tables = {}
    for name in NAMES:
        table = flipping(int(rng.integers(1 << 30)), checkpoints, n, ability=0.6)
        for row in table:
            shift = round(float(rng.normal(0, tau)) * n)
            wrong, right = np.flatnonzero(row == 0), np.flatnonzero(row == 1)
            row[rng.choice(wrong if shift > 0 else right, abs(shift), replace=False)] = float(shift > 0)
        tables[name] = table
    return tables


def judge_all(tables: dict[str, FloatArray], policy: Policy = LONG) -> list[Report]:
    checkpoints = len(next(iter(tables.values())))
    records = [
        record_of(100 * (t + 1), {name: table[t].tolist() for name, table in tables.items()})
        for t in range(checkpoints)
    ]
    return followed(records, policy)


def alarms(reports: Sequence[Report]) -> set[tuple[str, int]]:
    return {(e.benchmark, e.opened_step) for r in reports for e in r.incidents}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_thirty_healthy_checkpoints_with_jitter_raise_no_alarm(seed: int) -> None:
    reports = judge_all(jittery(seed))
    assert alarms(reports) == set()
    assert not any(v.word in LOSSES for r in reports for v in (*r.verdicts, *r.findings))


def test_a_report_has_the_noise_of_the_run_from_the_fifth_checkpoint_on() -> None:
    tables = {name: table[:6] for name, table in jittery(1).items()}
    noises = [report.noise for report in judge_all(tables)]
    assert [noise is None for noise in noises] == [True] * 4 + [False] * 2
    assert noises[-1] is not None
    assert {one.benchmark for one in noises[-1].benchmarks} == set(NAMES)


def test_the_flips_of_samples_alone_would_have_raised_alarms() -> None:
    """Why the jitter is in every test."""
    tables = jittery(1, n=2000, tau=0.01)
    reports = judge_all({name: tables[name] for name in NAMES[:2]})
    shown = [(v, c) for r in reports for v in r.verdicts for c in v.comparisons]
    assert any(c.p_worse_items < v.alpha_test and c.delta <= -LONG.min_effect for v, c in shown)
    assert alarms(reports) == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_ten_points_of_five_hundred_samples_are_found_within_a_few_checkpoints(seed: int) -> None:
    tables = jittery(seed)
    for row in tables["b2"][18:]:
        row[np.flatnonzero(row)[:50]] = 0.0
    reports = judge_all(tables)
    ((benchmark, opened),) = alarms(reports)
    assert benchmark == "b2"
    assert 1900 <= opened <= 2300
    onset = next(e.onset_step for r in reports for e in r.incidents)
    assert abs(onset - 1900) <= 300


def test_a_made_up_run_forgets_what_it_should() -> None:
    run = forgetting_run(samples=200, checkpoints=20)
    reports = followed(run.records, Policy(planned_checkpoints=20, phases=run.phases))
    words = {
        name: [v.word for r in reports for v in r.verdicts if v.benchmark == name]
        for name in ("facts", "sums", "reversal")
    }
    assert (words["facts"][-1], words["sums"][-1]) == (VerdictWord.FORGOTTEN, VerdictWord.FORGOTTEN)
    assert VerdictWord.IMPROVED in words["reversal"]
    assert {e.benchmark for r in reports for e in r.incidents} == {"facts", "sums"}
    assert VerdictWord.MISSING in {v.word for r in reports for v in r.verdicts}


# --- real answers of real models


def test_real_models_as_checkpoints_are_judged_as_their_counts_say() -> None:
    path = shared_data("per_sample/gsm8k_4models") / "correctness.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # Two small models, as if a run wavered between them, then the large one, then a small one again.
    order = ("6b_finetuning", "6b_verification", "6b_finetuning", "175b_verification", "6b_verification")
    run = run_of(*([float(row[model]) for row in rows] for model in order))
    means = [sum(float(row[model]) for row in rows) / len(rows) for model in order]
    reports = followed(run, Policy(planned_checkpoints=5))
    assert [r.verdicts[0].score for r in reports] == pytest.approx(means)
    jump = reports[3].verdicts[0].comparisons[0]
    assert jump.n_common == len(rows) == 1319
    assert jump.delta == pytest.approx(means[3] - sum(means[:3]) / 3)
    now, before = (
        np.array([float(r[order[3]]) for r in rows]),
        np.array([[float(r[m]) for m in order[:3]] for r in rows]),
    )
    known, unknown = before.mean(axis=1) == 1, before.mean(axis=1) == 0  # 80 % of three are all of them
    assert (jump.n_lost, jump.n_gained) == (int((known & (now < 1)).sum()), int((unknown & (now > 0)).sum()))


def test_a_real_model_that_turns_into_a_worse_one_is_regressed() -> None:
    path = shared_data("per_sample/gsm8k_4models") / "correctness.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    large, small = ([float(row[m]) for row in rows] for m in ("175b_verification", "175b_finetuning"))
    verdict = judged(run_of(*[large] * 4, small), policy=Policy(planned_checkpoints=10))
    assert verdict.word is VerdictWord.REGRESSED
    assert reason_text(verdict).startswith("0.563 at step 400 -> 0.347 since step 500; ")
    assert verdict.comparisons[0].delta == pytest.approx((458 - 742) / 1319)
