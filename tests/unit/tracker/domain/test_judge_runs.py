"""Whole runs: chance alone raises no alarm, a planted loss is found, and real answers are judged by their counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from tests.requires import shared_data
from tests.unit.tracker.domain.judging import NOW, judged, run_of, words
from tests.unit.tracker.domain.records import Scores, record_of
from tracker.domain.judge import judge
from tracker.domain.types import Policy, Report, VerdictWord

NAMES = tuple(f"b{i}" for i in range(5))
LONG = Policy(planned_checkpoints=30)


def flipping_run(seed: int, *, checkpoints: int = 30, n: int = 200, flips: float = 0.1) -> list[dict[str, Scores]]:
    """Benchmarks at a constant ability whose samples flip from checkpoint to checkpoint by chance alone."""
    rng = np.random.default_rng(seed)
    answers = {name: rng.random(n) < 0.6 for name in NAMES}
    run: list[dict[str, Scores]] = []
    for _ in range(checkpoints):
        for name, now in answers.items():
            # Redrawn samples keep the share of right ones, so the ability itself never moves.
            redrawn = rng.random(n) < flips
            answers[name] = np.where(redrawn, rng.random(n) < 0.6, now)
        run.append({name: answers[name].astype(float).tolist() for name in NAMES})
    return run


def judge_all(run: Sequence[Mapping[str, Scores]], policy: Policy) -> list[Report]:
    records = [record_of(100 * (i + 1), scores) for i, scores in enumerate(run)]
    return [judge(r, records, policy, now=NOW) for r in records]


@pytest.mark.parametrize("seed", range(3))
def test_thirty_checkpoints_of_pure_flips_raise_no_alarm(seed: int) -> None:
    reports = judge_all(flipping_run(seed), LONG)
    alarms = [v for r in reports for v in r.verdicts if v.word in (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN)]
    assert alarms == []


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_loss_is_found_at_once_and_forgotten_at_the_third_checkpoint(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run = flipping_run(seed, checkpoints=13, flips=0.05)
    beginner = [float(x) for x in rng.random(200) < 0.3]
    run[0]["b2"] = beginner  # the ability is learned between the first two checkpoints
    doomed = np.flatnonzero(np.array(run[9]["b2"]) == 1.0)[:40]  # 20 points of 200 samples
    for scores in run[10:]:
        answers = np.array(scores["b2"])
        answers[doomed] = 0.0
        scores["b2"] = answers.tolist()
    reports = judge_all(run, LONG)
    found = [{v.benchmark: v.word.value for v in r.verdicts}["b2"] for r in reports]
    assert found[10:13] == ["regressed", "regressed", "forgotten"]
    assert not {"regressed", "forgotten"} & set(found[:10])
    assert all(
        v.word not in (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN)
        for r in reports
        for v in r.verdicts
        if v.benchmark != "b2"
    )


# --- real answers of real models


def test_real_models_as_checkpoints_are_judged_as_their_counts_say() -> None:
    path = shared_data("per_sample/gsm8k_4models") / "correctness.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    order = ("6b_finetuning", "6b_verification", "175b_verification", "175b_finetuning")
    run = run_of(*([float(row[model]) for row in rows] for model in order))
    assert words(run) == ["first", "improved", "improved", "regressed"]
    verdict = judged(run)
    assert verdict.reason.startswith("0.56 -> 0.35 since step 300; lost ")
    assert verdict.comparisons[0].delta == pytest.approx((458 - 742) / 1319)


def test_real_answers_in_tasks_are_judged_task_by_task_and_together() -> None:
    path = shared_data("per_sample/bbh_davinci") / "per_sample.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    direct, cot = ([float(row[mode]) for row in rows] for mode in ("direct", "cot"))
    together = judged(run_of(direct, cot, clusters=[row["task"] for row in rows]))
    comparison = together.comparisons[0]
    assert comparison.method == "clustered-t"
    assert comparison.delta == pytest.approx((2582 - 1683) / 3500)
    # 14 tasks that move apart from each other are 14 observations, not 3,500.
    assert together.word is VerdictWord.IMPROVED
    assert comparison.p_better > 1e-4
    assert judged(run_of(direct, cot)).comparisons[0].p_better < 1e-50
    dyck = [i for i, row in enumerate(rows) if row["task"] == "dyck_languages"]
    one_task = judged(run_of([cot[i] for i in dyck], [direct[i] for i in dyck]))
    lost = sum(cot[i] > direct[i] for i in dyck)
    gained = sum(cot[i] < direct[i] for i in dyck)
    assert (one_task.comparisons[0].n_lost, one_task.comparisons[0].n_gained) == (lost, gained)
