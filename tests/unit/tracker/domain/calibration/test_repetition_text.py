"""How it is said what repeating an evaluation changes."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tracker.domain.calibration.repetition_text import (
    change_text,
    flips_text,
    is_unfit,
    not_calibrated_text,
    rate_text,
    repetition_text,
    repetitions_text,
    short_text,
    unfit_text,
)
from tracker.domain.records.calibration import Fitness, Repetition

FOUND = Repetition(
    benchmark="sums",
    samples=500,
    flips=2,
    flip_rate_low=0.0005,
    flip_rate_high=0.0144,
    other_texts=9,
    noise=0.002,
    noise_low=0.0007,
    noise_high=0.0038,
    shift=0.0,
    fitness=Fitness.FIT,
    min_effect=0.01,
    run_id="run",
    step=300,
    engine="vllm 0.32.1",
    measured_at=datetime(2026, 3, 14, tzinfo=UTC),
)
NONE = replace(FOUND, benchmark="facts", flips=0, noise=0.0, flip_rate_high=0.0073)
STALE = replace(FOUND, stale="engine is vllm 0.33.0, was vllm 0.32.1")
UNFIT = replace(FOUND, fitness=Fitness.UNFIT, noise=0.02)


@pytest.mark.parametrize(
    ("share", "said"), [(0.0, "0.0 %"), (0.004, "0.4 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1.0, "100 %")]
)
def test_a_share_has_the_digits_that_count(share: float, said: str) -> None:
    assert rate_text(share) == said


def test_a_clause_says_how_many_flip_by_how_much_and_whether_that_holds() -> None:
    assert repetition_text(FOUND) == "repeating the evaluation flips 0.4 % of the samples, score \u00b10.006"
    assert repetition_text(NONE) == "repeating the evaluation flips none of 500 samples (95 % CI up to 0.7 %)"
    assert repetition_text(STALE).endswith(" (stale: engine is vllm 0.33.0, was vllm 0.32.1)")
    assert change_text(0.01) == "\u00b10.028"  # 1.96 * sqrt(2) * 0.01
    assert (short_text(FOUND), short_text(NONE)) == (
        "run-to-run noise \u00b10.006",
        "no flips between repeated evaluations",
    )
    assert short_text(STALE) == "calibration is stale"


def test_an_unfit_benchmark_is_named_with_what_it_was_held_to() -> None:
    assert unfit_text(UNFIT) == (
        "sums is too noisy: repeated evaluations differ by \u00b10.055, more than policy.min_effect 0.01"
    )
    assert "repeated evaluations differ by 0.200 on average," in unfit_text(replace(UNFIT, shift=-0.2))
    assert is_unfit(UNFIT)
    assert not any(is_unfit(one) for one in (None, FOUND, NONE, replace(UNFIT, stale="something changed")))


def test_several_benchmarks_are_one_line_and_many_are_counted() -> None:
    assert repetitions_text((FOUND, NONE)) == (
        "repeating the evaluation flips: sums 0.4 % of the samples; facts none of 500 samples (95 % CI up to 0.7 %)"
    )
    assert repetitions_text((STALE,)) == "calibration is stale, rerun `tracker calibrate`: sums"
    many = repetitions_text((*[FOUND] * 6, STALE))
    assert many.count("0.4 %") == 4
    assert "; and 2 more; calibration is stale" in many
    assert flips_text(FOUND) == "0.4 % of the samples"


def test_what_was_never_calibrated_is_said_quietly() -> None:
    assert not_calibrated_text(["sums", "facts"]) == "not calibrated: sums and facts (run `tracker calibrate`)"
    assert not_calibrated_text([]) == ""
