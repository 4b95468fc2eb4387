"""Which earlier checkpoints a result is judged by."""

from dataclasses import replace
from typing import Any

import pytest

from eval_jobs.codec import plan_from_json, plan_to_json
from eval_jobs.types import EvalRecord, Generation, ServeSpec
from tests.unit.tracker.domain.judging import NOW, POLICY, judged, right, run_of, scores_of, words
from tests.unit.tracker.domain.making import failure_of, record_of, suite_of
from tracker.domain.records.losses import Acceptance
from tracker.domain.records.policy import Phase, Pinned, Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Baseline, Verdict, VerdictWord
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

LONG = Policy(planned_checkpoints=50)


def baseline_steps(verdict: Verdict, baseline: Baseline = Baseline.RECENT) -> tuple[int, ...]:
    return next(c.baseline_steps for c in verdict.comparisons if c.baseline is baseline)


def test_a_change_of_settings_begins_a_new_series() -> None:
    old = run_of(190, 190, 190, suite=suite_of(["sums"], few_shot=5))
    suite = suite_of(["sums"], few_shot=0)
    new = [record_of(step, {"sums": right(20)}, suite=suite) for step in range(400, 1000, 100)]
    assert words([*old, *new])[3:] == ["incomparable", *["inconclusive"] * 4, "equivalent"]


def test_a_change_of_serving_begins_a_new_series_and_the_old_one_goes_on_where_it_stopped() -> None:
    old = run_of(190, 190, 190)
    other = ServeSpec(max_model_len=512)
    new = [record_of(step, {"sums": right(20)}, serve=other) for step in (400, 500)]
    back = record_of(600, {"sums": right(190)})
    assert words([*old, *new])[3:] == ["incomparable", "inconclusive"]
    assert baseline_steps(judged([*old, *new, back])) == (100, 200, 300)


NEUTRAL: tuple[dict[str, Any], ...] = (
    {"port": 8123, "python": "/other/python", "gpu_memory_utilization": 0.9},
    {"args": ("--enforce-eager",)},
    {"args": ("--tensor-parallel-size", "2", "--max-num-seqs", "64", "--download-dir", "/cache")},
    {"args": ("--uvicorn-log-level=debug", "--no-enable-prefix-caching", "-dp=2")},
    {"concurrency": 64},
    {"request_timeout_s": 9.0},
)
COUNTING: tuple[dict[str, Any], ...] = (
    *({"dtype": "half"}, {"max_model_len": 512}, {"trust_remote_code": True}),
    *({"args": (flag, "x")} for flag in ("--quantization", "--kv-cache-dtype", "--seed", "--chat-template", "--new")),
    *({"generation": Generation(**{n: 2})} for n in ("max_tokens", "temperature", "top_k", "seed")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "word"), [*((c, "regressed") for c in NEUTRAL), *((c, "incomparable") for c in COUNTING)]
)
def test_a_series_continues_over_settings_that_cannot_change_a_score_and_over_no_others(
    change: dict[str, Any], word: str
) -> None:
    of_suite = {name: change[name] for name in ("concurrency", "request_timeout_s", "generation") if name in change}
    suite = replace(suite_of(["sums"]), **of_suite)
    serve = ServeSpec(**{name: value for name, value in change.items() if name not in of_suite})
    before = run_of(190, 190)
    after = [record_of(step, {"sums": right(20)}, suite=suite, serve=serve) for step in (300, 400)]
    stored = [replace(one, plan=plan_from_json(plan_to_json(one.plan))) for one in (*before, *after)]
    assert words(stored)[2] == word
    assert len(scores_of(stored).series) == (1 if word == "regressed" else 2)


def test_a_failed_checkpoint_is_passed_over_as_a_baseline() -> None:
    verdict = judged(run_of(190, failure_of(), 190, [1.0] * 100 + [None] * 100, 10))
    assert verdict.word is VerdictWord.REGRESSED
    assert baseline_steps(verdict) == (100, 300)


def test_only_failures_before_make_it_the_first() -> None:
    assert judged(run_of(failure_of(), 100)).word is VerdictWord.FIRST


def test_other_suites_are_not_compared_with_and_share_the_level() -> None:
    others = [record_of(s, {"sums": right(200)}, suite=suite_of(["sums"], name="other")) for s in (100, 200)]
    own = run_of(190, 190, 190)
    assert judged([*others, own[0]]).word is VerdictWord.FIRST
    assert judged([*others, *own]).alpha_test == pytest.approx(judged(own).alpha_test / 2)


def test_a_benchmark_that_joined_later_starts_later() -> None:
    old = [record_of(s, {"facts": right(100)}, suite=suite_of(["facts"])) for s in range(100, 700, 100)]
    new = record_of(700, {"facts": right(100), "sums": right(100)}, suite=suite_of(["facts", "sums"]))
    report = judge(new, scores_of([*old, new]), RunContext(), POLICY, now=NOW)
    assert [v.word for v in report.verdicts] == [VerdictWord.EQUIVALENT, VerdictWord.FIRST]


def test_a_record_that_arrives_late_is_judged_where_it_belongs() -> None:
    run = run_of(190, 190, 10, 190, 190)
    verdict = judged(run, 2)
    assert verdict.word is VerdictWord.REGRESSED
    assert baseline_steps(verdict) == (100, 200)
    assert judged(run, 0).word is VerdictWord.FIRST


def test_a_step_written_again_counts_with_its_newest_result() -> None:
    early = run_of(190, 190)
    first = record_of(300, {"sums": right(190)}, digest="old", finished_after_s=1)
    again = record_of(300, {"sums": right(10)}, digest="new", finished_after_s=2)
    for trajectory in ([*early, first, again], [*early, again, first]):
        report = judge(again, scores_of(trajectory), RunContext(), POLICY, now=NOW)
        assert report.verdicts[0].word is VerdictWord.REGRESSED
        after = record_of(400, {"sums": right(10)})
        report = judge(after, scores_of([*trajectory, after]), RunContext(), POLICY, now=NOW)
        assert report.verdicts[0].comparisons[1].baseline_steps == (100, 200, 300)


def test_a_run_of_unknown_length_is_held_to_epochs_of_alpha() -> None:
    run = run_of(*[140] * 4)
    unknown, planned = (judged(run, policy=Policy(planned_checkpoints=t)) for t in (None, 200))
    assert unknown.alpha_test == pytest.approx(planned.alpha_test)  # alpha / 2 for the first 100


def test_every_earlier_checkpoint_has_spent_its_share_however_it_was_measured() -> None:
    policy = Policy(planned_checkpoints=4)
    old = run_of(*[140] * 4, suite=suite_of(["sums"], few_shot=5))
    new = [record_of(s, {"sums": right(140)}, suite=suite_of(["sums"])) for s in (500, 600, 700)]
    outgrown, within = judged([*old, *new], policy=policy), judged(old, policy=policy)
    assert outgrown.alpha_test == pytest.approx(within.alpha_test * 4 / 200)


# --- phases


def test_a_new_phase_restarts_the_jitter_and_not_the_peak() -> None:
    wild = run_of(*[140, 60] * 6)
    calm = [record_of(100 * s, {"sums": right(100)}) for s in range(13, 22)]
    phases = (Phase(name="warm up", from_step=0), Phase(name="main", from_step=1200))
    plain, phased = judged([*wild, *calm], policy=LONG), judged([*wild, *calm], policy=replace(LONG, phases=phases))
    assert phased.comparisons[0].jitter < 0.2 * plain.comparisons[0].jitter
    assert baseline_steps(phased, Baseline.PEAK) == baseline_steps(plain, Baseline.PEAK)
    assert phased.alpha_test == plain.alpha_test


def test_the_checkpoint_at_the_border_still_belongs_to_the_phase_before() -> None:
    run = run_of(*[100] * 5, 60, *[100] * 8)
    at = [Policy(phases=(Phase(name="rest", from_step=s),)) for s in (500, 600, 1400)]
    jitters = [judged(run, policy=policy).comparisons[0].jitter for policy in at]
    assert jitters[0] > 1.1 * jitters[1]  # the dip of step 600 is in the first one's history alone
    assert jitters[2] == judged(run).comparisons[0].jitter  # a phase that begins here has not begun


# --- a pinned model


def pinned_to(records: list[EvalRecord], step: int, run_id: str = "base") -> tuple[Policy, RunContext]:
    scores = replace(scores_of(records), run_id=run_id)
    return replace(LONG, pinned=Pinned(run_id=run_id, step=step)), RunContext(pinned=scores)


def test_a_pinned_model_is_compared_with_from_the_first_checkpoint_on() -> None:
    policy, run_context = pinned_to(run_of(190), 100)
    verdict = judged(run_of(100), policy=policy, run_context=run_context)
    assert verdict.word is VerdictWord.REGRESSED
    assert reason_text(verdict) == "0.950 at step 100 (pinned baseline) -> 0.500 since step 100; 90 of 200 samples lost"
    assert verdict.alpha_test < 0.05 * 0.9 / 50 / 3


def test_a_pinned_model_takes_its_part_of_the_level_from_the_others() -> None:
    run = run_of(*[140] * 4)
    policy, run_context = pinned_to(run_of(140), 100)
    plain, pinned = judged(run, policy=LONG), judged(run, policy=policy, run_context=run_context)
    assert plain.comparisons[0].baseline is pinned.comparisons[0].baseline is Baseline.RECENT
    assert pinned.alpha_test < plain.alpha_test


def test_a_pinned_model_that_is_not_there_or_measured_otherwise_is_passed_over() -> None:
    run = run_of(100, 100, 100)
    for policy, run_context in (
        pinned_to(run_of(190), 700),
        pinned_to(run_of(190, suite=suite_of(["sums"], few_shot=5)), 100),
        (replace(LONG, pinned=Pinned(run_id="base", step=1)), RunContext()),
    ):
        verdict = judged(run, policy=policy, run_context=run_context)
        assert [c.baseline for c in verdict.comparisons] == [Baseline.RECENT]


def test_a_checkpoint_is_not_compared_with_itself() -> None:
    run = run_of(100, 190, 190)
    policy = replace(LONG, pinned=Pinned(run_id="run", step=200))
    run_context = RunContext(pinned=scores_of(run))
    assert [c.baseline for c in judged(run, 1, policy, run_context).comparisons] == [Baseline.RECENT]
    assert baseline_steps(judged(run, 2, policy, run_context), Baseline.PINNED) == (200,)


def test_the_samples_of_a_pinned_model_are_paired_by_name() -> None:
    other = run_of([0.0] * 10 + [1.0] * 190)
    policy, run_context = pinned_to(other, 100)
    assert judged(run_of([1.0] * 190 + [0.0] * 10), policy=policy, run_context=run_context).comparisons[0].n_lost == 10


# --- accepted levels


def accepted_at(step: int, from_step: int, benchmark: str = "sums") -> RunContext:
    acceptance = Acceptance(
        run_id="run", step=step, benchmark=benchmark, from_step=from_step, reason="the new mix", accepted_at=NOW
    )
    return RunContext(acceptances=(acceptance,))


def test_checkpoints_before_an_accepted_level_no_longer_count() -> None:
    run = run_of(*[190] * 6, *[100] * 6)
    run_context = accepted_at(800, 700)
    verdict = judged(run, policy=LONG, run_context=run_context)
    assert baseline_steps(verdict) == (700, 800, 900, 1000, 1100)
    assert verdict.comparisons[0].jitter == judged(run[6:], policy=LONG).comparisons[0].jitter
    assert judged(run, 6, LONG, run_context).word is VerdictWord.REGRESSED  # as it was before anybody accepted it
    assert judged(run, policy=LONG, run_context=accepted_at(800, 700, "facts")).word is VerdictWord.REGRESSED


def test_an_accepted_level_counts_more_than_the_pinned_model() -> None:
    policy, run_context = pinned_to(run_of(190), 100)
    run = run_of(*[100] * 4)
    assert judged(run, policy=policy, run_context=run_context).word is VerdictWord.REGRESSED
    both = replace(run_context, acceptances=accepted_at(200, 100).acceptances)
    assert judged(run, policy=policy, run_context=both).word is not VerdictWord.REGRESSED


# --- training that goes back


def test_a_loss_of_a_rewound_run_is_told_although_later_steps_of_the_first_try_are_known() -> None:
    first = [
        record_of(100 * (i + 1), {"sums": right(170 + i % 3)}, digest=f"first-{i}", finished_after_s=60.0 * i)
        for i in range(20)
    ]
    again = [
        record_of(100 * (i + 1), {"sums": right(80 + i % 3)}, digest=f"again-{i}", finished_after_s=6000.0 + 60.0 * i)
        for i in range(10, 16)
    ]
    run_context = RunContext(records=(*first, *again))
    for end in (11, 12):
        known = replace(run_context, records=(*first, *again[: end - 10]))
        report = judge(again[end - 11], scores_of(known.records), known, LONG, now=NOW)
        assert [e.opened_step for e in report.incidents] == [100 * end]
    late = judge(again[0], scores_of(run_context.records), run_context, LONG, now=NOW)
    assert late.verdicts[0].word is VerdictWord.REGRESSED
    assert late.incidents == ()  # later checkpoints of the same try know better
