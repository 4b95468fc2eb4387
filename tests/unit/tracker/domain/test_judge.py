"""Every verdict word, their order, and how long runs are judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_jobs.types import ServeSpec
from tests.records import forgetting_run
from tests.unit.tracker.domain.judging import NOW, POLICY, judged, right, run_of, words
from tests.unit.tracker.domain.records import Scores, failure_of, record_of, suite_of
from tracker.domain.baselines import Evidence
from tracker.domain.judge import judge
from tracker.domain.rules import word_of
from tracker.domain.statistics import Spread
from tracker.domain.types import Baseline, Comparison, Phase, Policy, VerdictWord

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "statistics.json").read_text())


# --- one test a word


def test_the_first_usable_result_has_nothing_to_compare_with() -> None:
    verdict = judged(run_of(140))
    assert (verdict.word, verdict.comparisons, verdict.mde) == (VerdictWord.FIRST, (), None)
    assert verdict.score == pytest.approx(0.7)
    assert verdict.reason == "0.7, the first usable result of this run"


def test_a_failed_benchmark_is_missing_and_says_why() -> None:
    verdict = judged(run_of(100, failure_of()))
    assert (verdict.word, verdict.score, verdict.coverage) == (VerdictWord.MISSING, None, 0.0)
    assert verdict.reason == "no result: vLLM ended while loading /pins/7 (E-SERVE-DIED)"


def test_too_few_scored_samples_are_missing_and_never_a_lower_score() -> None:
    verdict = judged(run_of(200, [1.0] * 150 + [None] * 50))
    assert verdict.word is VerdictWord.MISSING
    assert verdict.reason == (
        "only 150 of 200 samples have a score (75.0%, 95% needed): 50 errors, 0 unscored;"
        " the first: the server went away"
    )


def test_nothing_scored_is_missing_even_when_no_coverage_is_asked_for() -> None:
    assert judged(run_of([None]), policy=Policy(min_coverage=0.0)).word is VerdictWord.MISSING


def test_other_settings_are_incomparable_and_named() -> None:
    before = run_of(140, suite=suite_of(["sums"], few_shot=5))
    after = record_of(200, {"sums": right(20)}, suite=suite_of(["sums"], few_shot=0))
    verdict = judged([*before, after])
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert verdict.reason == ("not measured like step 100: the number of examples in the prompt (few_shot) is 0, was 5")


def test_a_change_of_settings_begins_a_new_series() -> None:
    old = run_of(190, 190, suite=suite_of(["sums"], few_shot=5))
    suite = suite_of(["sums"], few_shot=0)
    new = [record_of(step, {"sums": right(20)}, suite=suite) for step in (300, 400)]
    assert words([*old, *new])[2:] == ["incomparable", "equivalent"]


def test_other_serving_is_incomparable_and_named() -> None:
    before = run_of(190, 190)
    serve = ServeSpec(dtype="float32", args=("--quantization", "fp8"), port=8123)
    verdict = judged([*before, record_of(300, {"sums": right(20)}, serve=serve)])
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert verdict.reason == (
        "not measured like step 200: serve.args is --quantization, fp8, was the default;"
        " serve.dtype is float32, was auto"
    )


def test_a_change_of_serving_begins_a_new_series_and_the_old_one_goes_on_where_it_stopped() -> None:
    other = ServeSpec(max_model_len=512)
    old = run_of(190, 190)
    new = [record_of(step, {"sums": right(20)}, serve=other) for step in (300, 400)]
    back = record_of(500, {"sums": right(190)})
    assert words([*old, *new, back])[2:] == ["incomparable", "equivalent", "equivalent"]


def test_another_port_or_interpreter_is_the_same_series() -> None:
    after = record_of(200, {"sums": right(190)}, serve=ServeSpec(port=8123, python="/other/python"))
    assert judged([*run_of(190), after]).word is VerdictWord.EQUIVALENT


def test_too_few_common_samples_are_incomparable() -> None:
    before: Scores = [None] * 10 + [1.0] * 190
    after: Scores = [1.0] * 190 + [None] * 10
    verdict = judged(run_of(before, after))
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert verdict.reason == "only 180 of 200 samples have a score both here and at step 100 (95% needed)"


def test_a_drop_is_regressed_and_counted_in_samples() -> None:
    verdict = judged(run_of(186, 186, 4))
    assert verdict.word is VerdictWord.REGRESSED
    assert verdict.reason == "0.93 -> 0.02 since step 200; lost 182 of 200, gained 0"
    assert [c.baseline for c in verdict.comparisons] == [Baseline.PREVIOUS, Baseline.BEST]
    assert verdict.alpha_test == pytest.approx(0.05 / (10 * 1 * 2))


def test_a_drop_that_stays_for_three_checkpoints_is_forgotten() -> None:
    run = run_of(10, 186, 4, 4, 4, 4)
    assert words(run) == ["first", "improved", "regressed", "regressed", "forgotten", "forgotten"]
    assert judged(run, 4).reason == (
        "0.93 -> 0.02 since step 200, the best; lost 182 of 200, gained 0; worse than the best for three checkpoints in"
        " a row"
    )


def test_what_was_there_from_the_start_was_not_learned_and_is_only_regressed() -> None:
    assert words(run_of(186, 4, 4, 4))[1:] == ["regressed"] * 3


def test_a_loss_with_a_recovery_in_between_is_not_forgotten() -> None:
    assert words(run_of(10, 186, 4, 186, 4, 4))[4:] == ["regressed", "regressed"]


def test_a_gain_is_improved() -> None:
    verdict = judged(run_of(20, 120))
    assert verdict.word is VerdictWord.IMPROVED
    assert verdict.reason == "0.10 -> 0.60 since step 100; lost 0 of 200, gained 100"


def test_half_a_recovery_is_still_regressed_against_the_best() -> None:
    assert judged(run_of(190, 10, 100)).word is VerdictWord.REGRESSED


def test_a_full_recovery_is_improved_against_the_previous_one() -> None:
    assert judged(run_of(190, 10, 190)).word is VerdictWord.IMPROVED


def test_the_same_answers_of_enough_samples_are_equivalent() -> None:
    verdict = judged(run_of(140, 140))
    assert verdict.word is VerdictWord.EQUIVALENT
    assert verdict.reason == "0.700 -> 0.700 since step 100: shown to be within 0.02"


def test_the_same_answers_of_few_samples_conclude_nothing() -> None:
    verdict = judged(run_of(14, 14, n=20))
    assert verdict.word is VerdictWord.INCONCLUSIVE
    assert "too little to conclude from 20 samples" in verdict.reason


def test_a_loss_that_one_test_alone_would_flag_is_suspect() -> None:
    verdict = judged(run_of(140, 133))
    assert verdict.word is VerdictWord.SUSPECT
    assert "lost 7 of 200, gained 0: looks worse (p = 0.004), an alarm" in verdict.reason


def test_a_change_within_noise_is_inconclusive_and_says_what_could_hide() -> None:
    before = [1.0] * 100 + [0.0] * 100
    after = [1.0] * 90 + [0.0] * 10 + [1.0] * 10 + [0.0] * 90
    verdict = judged(run_of(before, after))
    assert verdict.word is VerdictWord.INCONCLUSIVE
    assert verdict.mde is not None
    assert 0.05 < verdict.mde < 0.15
    assert f"a true change below {verdict.mde:.2g} can go unseen" in verdict.reason
    assert "samples would show 0.04" in verdict.reason


def test_no_reason_ever_says_no_change() -> None:
    for run in (run_of(140, 140), run_of(14, 14, n=20), run_of(140, 139)):
        assert "no change" not in judged(run).reason.lower()


# --- order of the rules


def test_missing_comes_before_everything() -> None:
    half: Scores = [0.0] * 100 + [None] * 100
    old = run_of(190, suite=suite_of(["sums"], few_shot=5))
    assert judged([*old, record_of(200, {"sums": half})]).word is VerdictWord.MISSING


def test_steps_too_small_to_see_one_by_one_add_up_against_the_best() -> None:
    run = run_of(180, *range(177, 140, -3))
    found = words(run)
    assert "regressed" in found
    verdict = judged(run, found.index("regressed"))
    assert ", the best" in verdict.reason


def test_equivalence_to_the_previous_one_does_not_hide_a_loss_against_the_best() -> None:
    run = run_of(140, 133, 133)
    assert judged(run).word is not VerdictWord.EQUIVALENT


@pytest.mark.parametrize("case", GOLDEN["decision"])
def test_the_rules_agree_with_the_reference(case: dict[str, Any]) -> None:
    comparison = Comparison(
        baseline=Baseline.PREVIOUS,
        baseline_step=1,
        n_common=1000,
        common_fraction=1.0,
        delta=case["delta"],
        stderr=case["stderr"],
        ci_low=0.0,
        ci_high=0.0,
        p_worse=case["p_worse"],
        p_better=1 - case["p_worse"],
        n_lost=0,
        n_gained=0,
        method="paired-t",
    )
    df = float("inf") if case["df"] is None else case["df"]
    spread = Spread(centre=case["delta"], stderr=case["stderr"], df=df)
    policy = Policy(min_effect=case["min_effect"], equivalence_margin=case["margin"])
    evidence = Evidence(comparison=comparison, spread=spread, mean=0.5, baseline_mean=0.5)
    assert word_of([evidence], case["alpha_test"], policy).value == case["word"]


# --- which checkpoints count


def test_a_failed_checkpoint_is_passed_over_as_a_baseline() -> None:
    verdict = judged(run_of(190, failure_of(), 10))
    assert {c.baseline_step for c in verdict.comparisons} == {100}


def test_only_failures_before_make_it_the_first() -> None:
    assert judged(run_of(failure_of(), 100)).word is VerdictWord.FIRST


def test_other_suites_and_other_runs_are_ignored() -> None:
    other_suite = record_of(100, {"sums": right(200)}, suite=suite_of(["sums"], name="other"))
    record = record_of(200, {"sums": right(10)})
    checkpoint = replace(record.plan.checkpoint, run_id="elsewhere", step=100)
    other_run = replace(record, plan=replace(record.plan, checkpoint=checkpoint))
    assert judged([other_suite, other_run, record]).word is VerdictWord.FIRST


def test_a_benchmark_that_joined_later_starts_later() -> None:
    old = record_of(100, {"facts": right(100)}, suite=suite_of(["facts"]))
    new = record_of(200, {"facts": right(100), "sums": right(100)}, suite=suite_of(["facts", "sums"]))
    report = judge(new, [old, new], POLICY, now=NOW)
    assert [v.word for v in report.verdicts] == [VerdictWord.EQUIVALENT, VerdictWord.FIRST]


def test_a_record_that_arrives_late_is_judged_where_it_belongs() -> None:
    run = run_of(190, 10, 190, 190)
    verdict = judged(run, 1)
    assert (verdict.word, verdict.comparisons[0].baseline_step) == (VerdictWord.REGRESSED, 100)
    assert judged(run, 0).word is VerdictWord.FIRST


def test_a_step_written_again_counts_with_its_newest_result() -> None:
    first = record_of(100, {"sums": right(190)}, digest="old", finished_after_s=1)
    again = record_of(100, {"sums": right(10)}, digest="new", finished_after_s=2)
    after = record_of(200, {"sums": right(10)})
    for trajectory in ([first, again, after], [after, again, first]):
        verdict = judge(after, trajectory, POLICY, now=NOW).verdicts[0]
        assert verdict.word is VerdictWord.EQUIVALENT
    assert judge(again, [first, again, after], POLICY, now=NOW).verdicts[0].word is VerdictWord.FIRST


def test_the_best_pays_for_being_picked() -> None:
    run = run_of(20, 140, 30, 40, 131)
    previous, best = judged(run).comparisons
    assert (best.baseline_step, previous.baseline_step) == (200, 400)
    assert best.p_worse == pytest.approx(4 * 0.5**10)


def test_lower_is_better_is_judged_the_other_way_round() -> None:
    suite = suite_of(["sums"], higher_is_better=False)
    run = run_of(190, 10, 100, suite=suite)
    assert words(run) == ["first", "improved", "regressed"]
    verdict = judged(run)
    assert verdict.reason == "0.05 -> 0.50 since step 200; lost 90 of 200, gained 0"
    assert verdict.comparisons[1].baseline_step == 200


def test_clusters_of_samples_use_the_clustered_test() -> None:
    clusters = [f"passage {i // 10}" for i in range(200)]
    before, after = right(200), [0.0] * 20 + [1.0] * 180
    plain = judged(run_of(before, after))
    clustered = judged(run_of(before, after, clusters=clusters))
    assert (plain.word, plain.comparisons[0].method) == (VerdictWord.REGRESSED, "mcnemar-midp")
    assert clustered.comparisons[0].method == "clustered-t"
    assert clustered.word is not VerdictWord.REGRESSED


# --- phases


def test_after_the_first_phase_the_best_is_the_best_of_that_phase() -> None:
    phases = (Phase(name="skills", from_step=0), Phase(name="rest", from_step=200))
    policy = replace(POLICY, phases=phases)
    run = run_of(100, 150, 200, 200)
    assert [c.baseline_step for c in judged(run, -1, policy).comparisons] == [300, 200]
    assert [c.baseline_step for c in judged(run, -1).comparisons] == [300, 300]


def test_the_checkpoint_at_the_border_still_belongs_to_the_first_phase() -> None:
    phases = (Phase(name="rest", from_step=200), Phase(name="skills", from_step=0))
    policy = replace(POLICY, phases=phases)
    assert [c.baseline_step for c in judged(run_of(190, 100), -1, policy).comparisons] == [100, 100]
    assert judged(run_of(100, 190, 20), -1, policy).comparisons[1].baseline_step == 200


def test_a_made_up_run_with_a_second_phase_forgets_what_it_should() -> None:
    run = forgetting_run(samples=200)
    policy = replace(POLICY, phases=run.phases)
    reports = [judge(r, run.without_texts(), policy, now=NOW) for r in run.records]
    last = {v.benchmark: v.word for v in reports[-1].verdicts}
    assert last["facts"] is VerdictWord.FORGOTTEN
    assert last["sums"] is VerdictWord.FORGOTTEN
    assert last["reversal"] is VerdictWord.IMPROVED
    at_300 = {v.benchmark: v.word for v in reports[2].verdicts}
    assert at_300["sums"] is VerdictWord.MISSING


# --- properties


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), max_size=30))
def test_an_empty_history_gives_only_first_or_missing(scores: list[float | None]) -> None:
    assert judged(run_of(scores)).word in (VerdictWord.FIRST, VerdictWord.MISSING)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_records_are_kept_does_not_matter(counts: list[int], random: Any) -> None:
    run = run_of(*counts, n=40)
    shuffled = list(run)
    random.shuffle(shuffled)
    assert judge(run[-1], run, POLICY, now=NOW) == judge(run[-1], shuffled, POLICY, now=NOW)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=30, max_size=30), st.integers(0, 29))
def test_swapping_two_checkpoints_swaps_loss_and_gain(before: list[float], cut: int) -> None:
    after = [1.0 - s if i < cut else s for i, s in enumerate(before)]
    one, other = judged(run_of(before, after)), judged(run_of(after, before))
    mirror = {VerdictWord.REGRESSED: VerdictWord.IMPROVED, VerdictWord.IMPROVED: VerdictWord.REGRESSED}
    if one.word in mirror or other.word in mirror:
        assert mirror[one.word] is other.word
    assert one.comparisons[0].delta == pytest.approx(-other.comparisons[0].delta)
    assert one.comparisons[0].p_worse == pytest.approx(other.comparisons[0].p_better)
    assert one.mde == pytest.approx(other.mde)


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_regressed_candidate_is_never_called_improved(best: int, previous: int) -> None:
    verdict = judged(run_of(best, previous, 20, n=40))
    lost = any(c.p_worse < verdict.alpha_test and c.delta <= -0.02 for c in verdict.comparisons)
    assert not (lost and verdict.word is VerdictWord.IMPROVED)


def test_the_interval_of_a_difference_of_shares_stays_a_difference_of_shares() -> None:
    comparison = judged(run_of(100, 0, n=100)).comparisons[0]
    assert (comparison.delta, comparison.ci_low) == (-1.0, -1.0)
    assert comparison.ci_high > -1.0
