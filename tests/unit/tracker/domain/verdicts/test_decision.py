"""Whether something had been learned, which tests count, and which evidence is shown first."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.tracker.domain.regression.tables import flipping, track_of
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.types import Baseline, VerdictWord
from tracker.domain.regression.detector import ErrorBudget, jitter_of
from tracker.domain.scores.matrix import FloatArray
from tracker.domain.verdicts.decision import Decision, comparable, decide, was_learned
from tracker.domain.verdicts.hypothesis import Hypothesis, Subject, Thresholds
from tracker.domain.verdicts.losses.stages import lasting

SIZES = Thresholds(min_effect=0.01, equivalence_margin=0.01)


def hypothesis_of(table: FloatArray) -> Hypothesis:
    track = track_of(table)
    (jitter,) = jitter_of([track])
    return Hypothesis(
        subject=Subject(suite="skills", benchmark="sums"),
        matrix=track.scores,  # type: ignore[arg-type]
        track=track,
        steps=tuple(100 * (t + 1) for t in range(len(table))),
        jitter=jitter,
        level=ErrorBudget(alpha=0.05, planned=50, benchmarks=1),
        thresholds=SIZES,
    )


def with_levels(*levels: tuple[int, float], n: int = 400, seed: int = 0) -> FloatArray:
    """Checkpoints at one ability after another; samples keep their rank, a few flip."""
    rng = np.random.default_rng(seed)
    rank = np.arange(n)
    rows = [(rank < level * n) ^ (rng.random(n) < 0.02) for count, level in levels for _ in range(count)]
    return np.array(rows, dtype=np.float64)


def test_above_its_first_block_it_was_learned() -> None:
    assert was_learned(hypothesis_of(with_levels((10, 0.2), (20, 0.8), (3, 0.1))), None)


def test_good_from_the_start_was_not_learned_unless_above_chance() -> None:
    hypothesis = hypothesis_of(with_levels((30, 0.8), (3, 0.1)))
    assert not was_learned(hypothesis, None)
    assert was_learned(hypothesis, 0.25)
    assert not was_learned(hypothesis, 0.8)


@pytest.mark.parametrize(("newest", "is_shown"), [(0.9, True), (0.6, True), (0.1, False)])
def test_a_gain_of_several_checkpoints_counts_only_if_the_newest_shows_half_of_it(
    newest: float, *, is_shown: bool
) -> None:
    hypothesis = hypothesis_of(with_levels((4, 0.1), (7, 0.9), (1, newest)))
    tests = [e for e in hypothesis.evidence() if e.m > 1 and e.is_gain(SIZES.min_effect)]
    assert tests
    assert bool(lasting(hypothesis, tests)) is is_shown


def test_a_rise_of_less_than_two_points_is_not_learning() -> None:
    hypothesis = hypothesis_of(with_levels((10, 0.50), (20, 0.515), (3, 0.1), n=4000))
    assert not was_learned(hypothesis, None)
    assert not was_learned(hypothesis, 0.505)


def test_without_a_peak_nothing_is_known_to_be_learned() -> None:
    assert not was_learned(hypothesis_of(with_levels((3, 0.2), (3, 0.9))), 0.1)


def test_tests_with_too_few_common_samples_do_not_count() -> None:
    table = flipping(0, 6, n=100)
    table[-1, :4] = np.nan
    assert len(comparable(hypothesis_of(table).evidence())) == len(hypothesis_of(table).evidence()) > 0
    table[-1, 4:6] = np.nan
    assert {e.m for e in comparable(hypothesis_of(table).evidence())} == {
        4
    }  # three of the newest four have scored them
    assert comparable(hypothesis_of(np.ones((6, 1))).evidence()) == ()


def decided(table: FloatArray, known: Incident | None = None) -> Decision:
    hypothesis = hypothesis_of(table)
    return decide(hypothesis, comparable(hypothesis.evidence()), known, run_id="run", chance=None)


def test_the_evidence_that_decided_comes_first_and_then_the_candidate_alone() -> None:
    decision = decided(with_levels((30, 0.8), (3, 0.5)))
    assert decision.word is VerdictWord.REGRESSED
    strongest = min(decision.tests, key=lambda e: e.test.delta / e.test.stderr)
    assert decision.shown[0] is strongest
    assert [(e.m, e.blocks.baseline) for e in decision.shown[1:]] == [
        (1, b) for b in (Baseline.RECENT, Baseline.PEAK) if (1, b) != (strongest.m, strongest.blocks.baseline)
    ]


def test_forgetting_is_shown_against_the_peak() -> None:
    decision = decided(with_levels((10, 0.2), (20, 0.8), (6, 0.3)))
    assert decision.word is VerdictWord.FORGOTTEN
    assert decision.shown[0].blocks.baseline is Baseline.PEAK


def test_an_improvement_shows_its_strongest_gain() -> None:
    decision = decided(with_levels((30, 0.5), (2, 0.8)))
    assert decision.word is VerdictWord.IMPROVED
    assert decision.shown[0].blocks.baseline is Baseline.PEAK
    assert decision.shown[0].test.delta > 0.25


def test_a_loss_opens_where_it_stands_out_most() -> None:
    decision = decided(with_levels((30, 0.8), (2, 0.5)))
    assert decision.change is not None
    assert (decision.change.opened_step, decision.change.onset_step) == (3200, 3100)
    assert (decision.loss and decision.loss.onset_step, decision.change.forgotten) == (3100, False)


def test_a_known_loss_changes_only_when_something_is_new() -> None:
    table = with_levels((10, 0.2), (20, 0.8), (6, 0.3))
    known = Incident(
        run_id="run", suite="skills", benchmark="sums", opened_step=3100, opened_digest="of it", onset_step=3100
    )
    found = [decided(table[:t], known) for t in range(32, 37)]
    first = [d.word for d in found].index(VerdictWord.FORGOTTEN)
    assert first >= 1  # three checkpoints in a row
    assert [d.change for d in found[:first]] == [None] * first
    assert found[first].change == replace(known, forgotten=True)
    again = decided(table, replace(known, forgotten=True))
    assert (again.word, again.change, again.loss and again.loss.onset_step) == (VerdictWord.FORGOTTEN, None, 3100)


@pytest.mark.parametrize("low", [1, 3])
def test_recovery_ends_the_loss_and_says_when_it_was_last_seen(low: int) -> None:
    known = Incident(
        run_id="run", suite="skills", benchmark="sums", opened_step=3100, opened_digest="of it", onset_step=3100
    )
    decision = decided(with_levels((30, 0.8), (low, 0.5), (2, 0.8)), known)
    ended = Closing.TRANSIENT if low == 1 else Closing.RECOVERED
    assert decision.word.value == ended.value
    assert decision.change == replace(known, closed_step=3200 + 100 * low, closed_by=ended, last_step=3000 + 100 * low)
    assert decision.shown[0].blocks.baseline is Baseline.PEAK
