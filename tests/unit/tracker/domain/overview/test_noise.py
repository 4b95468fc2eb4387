"""Texts on the noise of a run."""

from dataclasses import replace

import pytest

from tests.judged_run import NOISE, judged_run
from tests.records import forgetting_run
from tracker.domain.overview.noise import newest_noise, noise_facts, range_text
from tracker.domain.records.calibration import BenchmarkNoise, NoiseAspect, OutOfRange


def test_each_aspect_has_a_text() -> None:
    assert dict(noise_facts(NOISE)) == {
        "jitter, in points": "trivia 1.2 and facts 0.30",
        "persistence": "0.65 (correlation of the jitter at neighbouring checkpoints)",
        "tails": "1.1 times as long as those of normal noise (80 second differences)",
        "estimated from": "9 to 42 checkpoints of each benchmark",
    }
    many = tuple(BenchmarkNoise(benchmark=f"b{k}", jitter=0.01, checkpoints=9) for k in range(20))
    unknown = dict(noise_facts(replace(NOISE, benchmarks=many, tails=None, differences=8)))
    assert unknown["jitter, in points"].endswith(" and 15 more")
    assert unknown["tails"] == "unknown: 8 second differences"


@pytest.mark.parametrize(
    ("aspect", "value", "limit", "expected"),
    [
        (NoiseAspect.JITTER, 0.042, 0.03, "sums has a jitter of 4.2 points (shown up to 3)."),
        (NoiseAspect.SPREAD, 44.4, 30.0, "jitters differ 44-fold (shown up to 30)."),
        (NoiseAspect.PERSISTENCE, 0.65, 0.6, "jitter persists with a correlation of 0.65 (shown up to 0.6; "),
        (NoiseAspect.TAILS, 1.84, 1.5, "tails are 1.8 times as long as normal ones (shown up to 1.5)."),
    ],
)
def test_a_run_out_of_range_says_what_and_how_far(
    aspect: NoiseAspect, value: float, limit: float, expected: str
) -> None:
    name = "sums\n" if aspect is NoiseAspect.JITTER else ""
    found = OutOfRange(aspect=aspect, value=value, limit=limit, benchmark=name)
    text = range_text(replace(NOISE, out_of_range=(found,)))
    assert text.startswith("The error rate was not shown for this noise between checkpoints, so false alarms may be")
    assert expected in text
    assert range_text(replace(NOISE, out_of_range=())) == ""


def test_the_newest_noise_of_each_suite_counts() -> None:
    reports = judged_run().reports
    other = replace(NOISE, benchmarks=(BenchmarkNoise(benchmark="other", jitter=0.01, checkpoints=9),))
    newest = replace(NOISE, persistence=0.2)
    known = (replace(reports[0], noise=other), *reports[1:-1], replace(reports[-1], noise=newest))
    assert newest_noise(known) == (newest, other)
    assert newest_noise(forgetting_run().reports) == ()
