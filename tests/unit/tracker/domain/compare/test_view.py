"""What `tracker compare A B` is told."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.errors import Incomparable
from eval_jobs.types import EngineKind, EvalRecord, EvalResult, ServeSpec
from tests.imported import fields, lm_eval
from tests.imported import given as given_file
from tests.records import without_samples
from tests.unit.tracker.domain.judging import right, run_of, scores_of
from tests.unit.tracker.domain.making import failure_of, record_of, suite_of
from tracker.domain.compare.sample_pages import sample_pages
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.imports.lm_eval import sheets_of_lm_eval
from tracker.domain.imports.records import checkpoints_of
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import neutral_lines
from tracker.domain.records.types import Baseline, VerdictWord
from tracker.domain.regression.jitter import Jitter
from tracker.domain.scores.series import series_key
from tracker.domain.scores.statistics.paired import interval
from tracker.domain.verdicts.candidates import known_jitter, steps_for_jitter

POLICY = Policy()
NO_JITTER = RunNoise()
"""Nothing is known of the run."""


def test_two_checkpoints_show_change_interval_flips_and_both_answers() -> None:
    before = record_of(600, {"sums": [1.0] * 190 + [0.0] * 10})
    after = record_of(1000, {"sums": [0.0] * 180 + [1.0] * 20})
    view = compare_parts([(before, after)], POLICY, NO_JITTER, examples=2)
    (sums,) = view.benchmarks
    assert (view.before.step, view.after.step, view.refused) == (600, 1000, ())
    assert (sums.word, sums.comparison.baseline) == (VerdictWord.REGRESSED, Baseline.GIVEN)
    assert sums.comparison.delta == pytest.approx(-0.85)
    assert sums.comparison.ci_low < -0.85 < sums.comparison.ci_high
    assert (sums.comparison.n_lost, sums.comparison.n_gained) == (180, 10)
    assert sums.comparison.p_worse < 1e-9
    assert [e.sample_id for e in sums.lost] == ["s0", "s1"]
    assert [e.sample_id for e in sums.gained] == ["s190", "s191"]
    example = sums.lost[0]
    assert (example.prompt, example.target) == ("question 0", "target 0")
    assert (example.answer_before, example.answer_after) == ("answer 1.0", "answer 0.0")
    assert (example.score_before, example.score_after) == (1.0, 0.0)


def test_no_examples_are_returned_when_none_are_asked_for() -> None:
    view = compare_parts(
        [(record_of(1, {"sums": [1.0]}), record_of(2, {"sums": [0.0]}))], POLICY, NO_JITTER, examples=0
    )
    assert (view.benchmarks[0].lost, view.benchmarks[0].gained) == ((), ())


def test_a_graded_sample_is_lost_if_it_was_right_and_the_largest_change_comes_first() -> None:
    before = record_of(1, {"sums": [0.6, 0.6, 0.9, 0.5, 0.4]})
    after = record_of(2, {"sums": [0.4, 0.1, 0.6, 0.9, 0.1]})
    (sums,) = compare_parts([(before, after)], POLICY, NO_JITTER).benchmarks
    assert [e.sample_id for e in sums.lost] == ["s1", "s0"]
    assert [e.sample_id for e in sums.gained] == ["s3"]
    assert (sums.comparison.n_lost, sums.comparison.n_gained) == (2, 1)


def test_lower_is_better_turns_losses_round() -> None:
    suite = suite_of(["errors"], higher_is_better=False)
    before = record_of(1, {"errors": [0.0] * 100}, suite=suite)
    after = record_of(2, {"errors": [1.0] * 50 + [0.0] * 50}, suite=suite)
    (errors,) = compare_parts([(before, after)], POLICY, NO_JITTER).benchmarks
    assert errors.word is VerdictWord.REGRESSED
    assert errors.comparison.delta == pytest.approx(-0.5)
    assert (errors.after.mean, errors.lost[0].score_after) == (0.5, 1.0)


def test_what_cannot_be_compared_is_refused_with_everything_that_differs() -> None:
    before = record_of(1, {"sums": [1.0], "facts": failure_of("facts"), "old": [1.0]})
    names = ("sums", "facts", "new")
    after = record_of(2, {"sums": [1.0], "facts": [1.0], "new": [1.0]}, suite=suite_of(names))
    view = compare_parts([(before, after)], POLICY, NO_JITTER)
    assert [b.benchmark for b in view.benchmarks] == ["sums"]
    assert {r.benchmark: r.reasons for r in view.refused} == {
        "facts": ("no result at step 1: vLLM ended while loading /pins/7 (E-SERVE-DIED)",),
        "new": ("not evaluated at step 1",),
        "old": ("not evaluated at step 2",),
    }


def test_other_settings_are_refused_by_name() -> None:
    names = ("sums", "facts")
    before = record_of(1, {"sums": [1.0], "facts": [1.0]}, suite=suite_of(names))
    other = suite_of(names)
    changed = replace(other, benchmarks=(replace(other.benchmarks[0], few_shot=5), other.benchmarks[1]))
    view = compare_parts([(before, record_of(2, {"sums": [1.0], "facts": [1.0]}, suite=changed))], POLICY, NO_JITTER)
    (refused,) = view.refused
    assert refused.reasons == ("few_shot (examples in the prompt) is 5, was the default",)


def test_other_serving_is_refused_by_name() -> None:
    before, after = record_of(1, {"sums": [1.0]}), record_of(2, {"sums": [1.0]}, serve=ServeSpec(dtype="float32"))
    with pytest.raises(Incomparable, match=r"sums: serve\.dtype is float32, was auto"):
        compare_parts([(before, after)], POLICY, NO_JITTER)


def test_a_remote_server_is_refused_against_a_served_one_by_the_engine_alone() -> None:
    remote = ServeSpec(engine=EngineKind.REMOTE, base_url="http://a/v1", model="m")
    before, after = record_of(1, {"sums": [1.0]}), record_of(2, {"sums": [1.0]}, serve=remote)
    with pytest.raises(Incomparable, match=r"sums: serve\.engine is remote, was vllm \("):
        compare_parts([(before, after)], POLICY, NO_JITTER)


def test_too_few_common_samples_are_refused() -> None:
    before = record_of(1, {"sums": [1.0] * 10, "facts": [1.0]})
    after = record_of(2, {"sums": [1.0] * 8 + [None, None], "facts": [1.0]})
    (refused,) = compare_parts([(before, after)], POLICY, NO_JITTER).refused
    assert refused.reasons == ("only 8 of 10 samples scored on both sides (95 % required)",)


def means_at(step: int, *means: float, task_version: float = 1.0) -> EvalRecord:
    names = [f"task{k}" for k in range(len(means))]
    document = lm_eval(dict(zip(names, means, strict=True)), step=step, versions=dict.fromkeys(names, task_version))
    (one,) = checkpoints_of(sheets_of_lm_eval(fields(document), {}, given_file()), run_id="run", suite="s")
    return one.record


def test_means_without_samples_are_shown_unpaired_and_no_verdict_rests_on_them() -> None:
    with pytest.raises(Incomparable) as caught:
        compare_parts([(means_at(100, 0.8), means_at(900, 0.5))], POLICY, NO_JITTER)
    assert (
        "task0: 0.800 (standard error 0.010) at step 100, 0.500 (standard error 0.010) at step 900: imported "
        "without samples, so they cannot be paired; unpaired difference: 95 % CI \N{MINUS SIGN}0.328 to "
        "\N{MINUS SIGN}0.272"
    ) in caught.value.message
    assert "--log_samples" in caught.value.hint


def test_means_that_were_measured_in_two_ways_have_no_change_between_them() -> None:
    with pytest.raises(Incomparable) as caught:
        compare_parts([(means_at(100, 0.8), means_at(900, 0.5, task_version=2.0))], POLICY, NO_JITTER)
    assert "0.800" in caught.value.message
    assert "unpaired difference" not in caught.value.message


def test_of_many_benchmarks_that_cannot_be_compared_a_few_are_named() -> None:
    with pytest.raises(Incomparable, match="; and 79 more"):
        compare_parts([(means_at(100, *[0.8] * 87), means_at(900, *[0.5] * 87))], POLICY, NO_JITTER)


def test_nothing_comparable_is_an_error_that_says_why_for_each() -> None:
    before = record_of(1, {"sums": failure_of()})
    with pytest.raises(Incomparable) as caught:
        compare_parts([(before, record_of(2, {"sums": [None]}))], POLICY, NO_JITTER)
    assert caught.value.exit_code == 3
    assert "no comparable benchmark at steps 1 and 2: sums: no result at step 1" in caught.value.message
    assert "tracker evaluate" in caught.value.hint


def test_nothing_scored_at_all_is_refused() -> None:
    with pytest.raises(Incomparable, match="0 of 1 samples scored"):
        compare_parts([(record_of(1, {"sums": [None]}), record_of(2, {"sums": [1.0]}))], POLICY, NO_JITTER)


def test_a_checkpoint_compared_with_itself_has_lost_nothing() -> None:
    record = record_of(1, {"sums": [1.0, 0.0] * 300})
    key = series_key(record.plan, record.results[0])
    noise = RunNoise(jitters={key: Jitter(tau2=0.05**2, variance=1e-9)})
    (sums,) = compare_parts([(record, record)], POLICY, noise).benchmarks
    assert (sums.word, sums.lost, sums.gained) == (VerdictWord.EQUIVALENT, (), ())
    assert sums.spread_of_run == sums.spread
    assert (sums.comparison.p_worse, sums.is_jitter_unknown) == (0.5, False)


# --- the jitter of the run


def swinging(*counts: int) -> list[EvalRecord]:
    return run_of(*counts, n=400)


def test_a_run_that_swings_by_itself_makes_a_difference_unremarkable() -> None:
    calm, wild = swinging(*[300] * 8), swinging(*[300, 260] * 4)
    before, after = record_of(900, {"sums": right(300, 400)}), record_of(1000, {"sums": right(270, 400)})
    shown = [
        compare_parts([(before, after)], POLICY, RunNoise(jitters=known_jitter(scores_of(run), 0.95))).benchmarks[0]
        for run in (calm, wild)
    ]
    assert [b.word for b in shown] == [VerdictWord.REGRESSED, VerdictWord.INCONCLUSIVE]
    assert shown[0].comparison.jitter < 0.005 < shown[1].comparison.jitter
    for one in shown:
        assert one.comparison.p_worse_items == pytest.approx(0.5**31)
        assert one.comparison.p_worse >= one.comparison.p_worse_items
        assert (one.comparison.ci_low, one.comparison.ci_high) == pytest.approx(interval(one.spread_of_run))
        assert not one.is_jitter_unknown


def test_where_no_jitter_is_known_the_samples_alone_speak() -> None:
    before, after = record_of(1, {"sums": right(300, 400)}), record_of(2, {"sums": right(270, 400)})
    (sums,) = compare_parts([(before, after)], POLICY, NO_JITTER).benchmarks
    assert (sums.is_jitter_unknown, sums.comparison.jitter) == (True, 0.0)
    assert sums.comparison.p_worse == sums.comparison.p_worse_items
    assert (sums.comparison.ci_low, sums.comparison.ci_high) == pytest.approx(interval(sums.spread))


def test_the_jitter_of_a_run_is_known_from_its_fifth_checkpoint_on() -> None:
    assert known_jitter(scores_of(swinging(*[300] * 4)), 0.95) == {}
    (key,) = known_jitter(scores_of(swinging(*[300] * 5)), 0.95)
    assert key == series_key(swinging(1)[0].plan, swinging(1)[0].outcomes[0])  # type: ignore[arg-type]


def test_the_jitter_of_a_long_run_is_known_from_its_newest_checkpoints_alone() -> None:
    """Of every series, also one that was not measured lately; screens do not count."""
    random = Random(7)  # noqa: S311 - no secret
    run = swinging(*(random.randint(280, 300) for _ in range(130)))
    older = [
        replace(record, outcomes=tuple(replace(o, fingerprint="older") for o in record.outcomes)) for record in run[:5]
    ]
    screens = [
        replace(record, outcomes=tuple(replace(o, left_out=9) for o in record.outcomes if isinstance(o, EvalResult)))
        for record in run[60:70]
    ]
    records = [*older, *run[5:60], *screens, *run[70:]]
    steps = steps_for_jitter(map(without_samples, records))
    assert not steps & {record.plan.checkpoint.step for record in (*run[5:40], *screens)}
    needed = [record for record in records if record.plan.checkpoint.step in steps]
    assert len(needed) == 5 + 80
    whole = known_jitter(scores_of(records), 0.95)
    assert len(whole) == 2
    assert known_jitter(scores_of(needed), 0.95) == whole


def test_the_level_is_shared_by_the_benchmarks_that_are_shown() -> None:
    before = record_of(1, {"sums": right(100), "facts": right(100)})
    after = record_of(2, {"sums": right(94), "facts": right(94)})
    p = 0.5**7
    assert p < 0.05 / 2
    assert {b.word for b in compare_parts([(before, after)], POLICY, NO_JITTER).benchmarks} == {VerdictWord.REGRESSED}
    strict = replace(POLICY, alpha=1.5 * p)
    assert {b.word for b in compare_parts([(before, after)], strict, NO_JITTER).benchmarks} == {VerdictWord.SUSPECT}


def test_samples_of_one_passage_are_one_observation() -> None:
    clusters = [f"passage {i // 10}" for i in range(200)]
    before, after = right(200), [0.0] * 20 + [1.0] * 180
    for known, method in (((), "mcnemar-midp"), (clusters, "clustered-t")):
        one, other = record_of(1, {"sums": before}, clusters=known), record_of(2, {"sums": after}, clusters=known)
        (sums,) = compare_parts([(one, other)], POLICY, NO_JITTER).benchmarks
        assert sums.comparison.method == method
        assert (sums.comparison.p_worse < 1e-4) == (method == "mcnemar-midp")


scores = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=25, max_size=25)


@given(scores, scores)
def test_comparing_the_other_way_round_mirrors_everything(a: list[float], b: list[float]) -> None:
    one_record, other_record = record_of(1, {"sums": a}), record_of(2, {"sums": b})
    (one,) = compare_parts([(one_record, other_record)], POLICY, NO_JITTER, examples=25).benchmarks
    (other,) = compare_parts([(other_record, one_record)], POLICY, NO_JITTER, examples=25).benchmarks
    assert one.comparison.delta == pytest.approx(-other.comparison.delta)
    assert (one.comparison.ci_low, one.comparison.ci_high) == pytest.approx(
        (-other.comparison.ci_high, -other.comparison.ci_low)
    )
    assert one.comparison.p_worse == pytest.approx(other.comparison.p_better)
    assert {e.sample_id for e in one.lost} == {e.sample_id for e in other.gained}
    assert (one.before, one.after) == (other.after, other.before)


def test_settings_that_cannot_change_a_score_are_named_beside_the_comparison() -> None:
    before = record_of(1, {"sums": right(300, 400)})
    after = record_of(2, {"sums": right(200, 400)}, serve=ServeSpec(args=("--tensor-parallel-size=2",)))
    view = compare_parts([(before, after)], POLICY, NO_JITTER)
    assert [one.word for one in view.benchmarks] == [VerdictWord.REGRESSED]
    text = "different, without effect on scores: serve.args --tensor-parallel-size is 2, was the default"
    assert list(neutral_lines(view.neutral)) == [text]
    pages = sample_pages(before, after, ["sums"]).pages
    assert len(pages) == 2
