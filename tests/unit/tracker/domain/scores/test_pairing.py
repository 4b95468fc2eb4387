"""Which samples pair, and what is said about settings that differ."""

from dataclasses import replace

import pytest

from eval_jobs.types import Generation
from tests.unit.tracker.domain.making import plan_of, result_of, samples_of, suite_of
from tracker.domain.scores.pairing import Pairing, explain_difference, pair


def paired(candidate: object, baseline: object) -> Pairing:
    result = pair(candidate, baseline)  # type: ignore[arg-type]
    assert isinstance(result, Pairing)
    return result


def test_only_samples_with_a_score_on_both_sides_are_paired() -> None:
    pairing = paired(result_of([1.0, None, 0.0, 1.0]), result_of([0.0, 1.0, None, 1.0]))
    assert pairing.sample_ids == ("s0", "s3")
    assert pairing.candidate.tolist() == [1.0, 1.0]
    assert pairing.baseline.tolist() == [0.0, 1.0]
    assert pairing.common_fraction == 0.5


def test_samples_pair_by_content_and_never_by_position() -> None:
    result = result_of([1.0, 0.0, 0.0])
    turned = replace(result, samples=tuple(reversed(result.samples)))
    pairing = paired(turned, result)
    assert pairing.candidate.tolist() == pairing.baseline.tolist()


def test_samples_that_only_one_side_planned_count_against_the_common_fraction() -> None:
    pairing = paired(result_of([1.0] * 10), result_of([1.0] * 8))
    assert pairing.common_fraction == 0.8


def test_repeats_are_averaged_before_pairing() -> None:
    one, two = samples_of([1.0, 0.0])
    result = replace(result_of([]), samples=(one, replace(two, sample_id="s0", repeat=1)))
    pairing = paired(result, result_of([1.0]))
    assert (pairing.candidate.tolist(), pairing.planned) == ([0.5], 1)


def test_lower_is_better_is_turned_so_that_up_is_better() -> None:
    pairing = paired(result_of([0.1], higher_is_better=False), result_of([0.4], higher_is_better=False))
    assert pairing.candidate[0] - pairing.baseline[0] == pytest.approx(0.3)


def test_clusters_come_from_the_candidate_and_only_where_they_group() -> None:
    grouped = paired(result_of([1.0, 0.0], clusters=["a", "a"]), result_of([1.0, 0.0]))
    assert grouped.clusters is not None
    assert grouped.clusters.tolist() == [0, 0]
    assert paired(result_of([1.0, 0.0]), result_of([1.0, 0.0])).clusters is None


def test_unlike_fingerprints_are_never_paired() -> None:
    assert pair(result_of([1.0], fingerprint="a"), result_of([1.0], fingerprint="b")) is None


def test_nothing_planned_has_nothing_in_common() -> None:
    assert paired(result_of([]), result_of([])).common_fraction == 0.0


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
