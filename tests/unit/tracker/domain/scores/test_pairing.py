"""Which samples pair, and what is said about settings that differ."""

from dataclasses import replace

import pytest

from eval_jobs.types import Generation, ServeSpec
from tests.unit.tracker.domain.making import plan_of, record_of, result_of, samples_of, suite_of
from tracker.domain.records.reason_text import difference_text
from tracker.domain.scores.pairing import explain_difference, measured_alike, neutral_differences, pair


def test_only_samples_with_a_score_on_both_sides_are_pair() -> None:
    pairing = pair(result_of([1.0, None, 0.0, 1.0]), result_of([0.0, 1.0, None, 1.0]))
    assert pairing.sample_ids == ("s0", "s3")
    assert pairing.candidate.tolist() == [1.0, 1.0]
    assert pairing.baseline.tolist() == [0.0, 1.0]
    assert pairing.common_fraction == 0.5


def test_samples_pair_by_content_and_never_by_position() -> None:
    result = result_of([1.0, 0.0, 0.0])
    turned = replace(result, samples=tuple(reversed(result.samples)))
    pairing = pair(turned, result)
    assert pairing.candidate.tolist() == pairing.baseline.tolist()


def test_samples_that_only_one_side_planned_count_against_the_common_fraction() -> None:
    pairing = pair(result_of([1.0] * 10), result_of([1.0] * 8))
    assert pairing.common_fraction == 0.8


def test_repeats_are_averaged_before_pairing() -> None:
    one, two = samples_of([1.0, 0.0])
    result = replace(result_of([]), samples=(one, replace(two, sample_id="s0", repeat=1)))
    pairing = pair(result, result_of([1.0]))
    assert (pairing.candidate.tolist(), pairing.planned) == ([0.5], 1)


def test_lower_is_better_is_turned_so_that_up_is_better() -> None:
    pairing = pair(result_of([0.1], higher_is_better=False), result_of([0.4], higher_is_better=False))
    assert pairing.candidate[0] - pairing.baseline[0] == pytest.approx(0.3)


def test_clusters_come_from_the_candidate_and_only_where_they_group() -> None:
    grouped = pair(result_of([1.0, 0.0], clusters=["a", "a"]), result_of([1.0, 0.0]))
    assert grouped.clusters is not None
    assert grouped.clusters.tolist() == [0, 0]
    assert pair(result_of([1.0, 0.0]), result_of([1.0, 0.0])).clusters is None


def test_other_settings_are_alike_only_if_they_cannot_change_a_score() -> None:
    own, faster, warmer = (
        record_of(1, {"sums": [1.0]}, suite=replace(suite_of(["sums"]), **change))
        for change in ({}, {"concurrency": 64}, {"generation": Generation(temperature=1.0)})
    )
    assert [measured_alike(other, own, "sums") for other in (faster, warmer)] == [True, False]
    assert not measured_alike(own, own, "facts")


def test_what_differs_without_effect_is_named_without_passwords() -> None:
    suite = suite_of(["sums"], data="/a")
    before = plan_of(1, suite, serve=ServeSpec(base_url="http://u:secret@a", args=("--enforce-eager",)))
    moved = replace(suite, concurrency=64, benchmarks=suite_of(["sums"], data="/b").benchmarks)
    serve = ServeSpec(base_url="http://b", gpu_memory_utilization=0.9, args=("-tp", "2"))
    texts = [difference_text(one) for one in neutral_differences(plan_of(2, moved, serve=serve), before)]
    assert texts == [
        "benchmark.data changed in between",
        "serve.args --enforce-eager is the default, was true",
        "serve.args --tensor-parallel-size is 2, was the default",
        "serve.base_url changed in between",
        "serve.gpu_memory_utilization is 0.9, was the default",
        "concurrency (requests in flight) is 64, was 8",
    ]
    assert neutral_differences(before, before) == ()
    assert neutral_differences(plan_of(2, suite_of(["sums", "facts"], data="/a"), serve=before.serve), before) == ()


def test_nothing_planned_has_nothing_in_common() -> None:
    assert pair(result_of([]), result_of([])).common_fraction == 0.0


def test_differing_settings_are_named_in_words() -> None:
    now = replace(suite_of(["sums"], few_shot=0, data_digest="a"), generation=Generation(temperature=0.7))
    before = suite_of(["sums"], few_shot=5, data_digest="b")
    assert explain_difference(plan_of(2, now), plan_of(1, before), "sums") == (
        "data content differs",
        "few_shot (examples in the prompt) is 0, was 5",
        "temperature is 0.7, was 0.0",
    )


def test_a_long_template_is_shortened_and_none_is_called_the_default() -> None:
    now, before = suite_of(["sums"], prompt_template="x" * 500), suite_of(["sums"])
    (phrase,) = explain_difference(plan_of(2, now), plan_of(1, before), "sums")
    assert phrase == f"prompt_template is {'x' * 60}..., was the default"


def test_a_benchmark_that_one_side_lacks_is_said_so() -> None:
    (phrase,) = explain_difference(plan_of(2, suite_of(["sums"])), plan_of(1, suite_of(["facts"])), "sums")
    assert phrase == "sums was not evaluated at step 1"


def test_equal_settings_under_unlike_fingerprints_point_to_the_program_itself() -> None:
    suite = suite_of(["sums"])
    (phrase,) = explain_difference(plan_of(2, suite), plan_of(1, suite), "sums")
    assert "scoring_version" in phrase
