"""What must hold for every run that the judge can be given."""

import random as random_module
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalRecord, EvalResult
from tests.unit.tracker.domain.judging import NOW, POLICY, changes_of, followed, judged, remembering, run_of, scores_of
from tests.unit.tracker.domain.regression.tables import flipping
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Baseline, Report, Verdict, VerdictWord
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

W = VerdictWord
counts = st.lists(st.integers(0, 40), min_size=1, max_size=12)
seeds = st.integers(0, 10_000)


def assert_same_reports(one: Report, other: Report) -> None:
    """Equal, but for rounding in the last digits: sums were made in another order."""
    assert [v.word for v in one.verdicts] == [v.word for v in other.verdicts]
    assert [reason_text(v) for v in one.verdicts] == [reason_text(v) for v in other.verdicts]
    assert one.incidents == other.incidents
    assert len(one.findings) == len(other.findings)
    for a, b in zip((*one.verdicts, *one.findings), (*other.verdicts, *other.findings), strict=True):
        assert numbers(a) == pytest.approx(numbers(b), rel=1e-9, abs=1e-12)


def numbers(verdict: Verdict) -> list[float]:
    found = [
        verdict.coverage,
        verdict.alpha_test,
        *(x or 0.0 for x in (verdict.score, verdict.mde, verdict.mde_pooled)),
    ]
    for c in verdict.comparisons:
        found += [c.delta, c.stderr, c.p_worse, c.p_better, c.p_worse_items, c.jitter, c.ci_low, c.ci_high]
        found += [c.n_lost, c.n_gained, c.selected_from, *c.baseline_steps, *c.pooled_steps]
    return found


def table_run(seed: int, checkpoints: int, n: int = 40) -> list[EvalRecord]:
    return run_of(*(row.tolist() for row in flipping(seed, checkpoints, n)))


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), max_size=30))
def test_an_empty_history_gives_only_first_or_missing(scores: list[float | None]) -> None:
    assert judged(run_of(scores)).word in (W.FIRST, W.MISSING)


@given(st.integers(0, 40), st.integers(1, 20), st.sampled_from([1, 2, 40]))
def test_a_constant_history_raises_nothing(count: int, checkpoints: int, n: int) -> None:
    for report in followed(run_of(*[min(count, n)] * checkpoints, n=n), Policy(planned_checkpoints=20)):
        assert not report.incidents
        assert not report.findings
        assert report.verdicts[0].word in (W.FIRST, W.INCONCLUSIVE, W.EQUIVALENT, W.INCOMPARABLE)


@given(counts, st.randoms(use_true_random=False))
def test_scores_built_in_any_order_give_the_same_report(counts: list[int], random: random_module.Random) -> None:
    run = run_of(*counts, n=40)
    shuffled = list(run)
    random.shuffle(shuffled)
    one, other = (judge(run[-1], scores_of(order), RunContext(), POLICY, now=NOW) for order in (run, shuffled))
    assert_same_reports(one, other)


@given(seeds, st.integers(2, 16), st.data())
def test_rewriting_a_step_leaves_no_trace_of_what_was_there(seed: int, checkpoints: int, data: st.DataObject) -> None:
    run = table_run(seed, checkpoints)
    again = data.draw(st.integers(0, checkpoints - 1))
    old = replace(table_run(seed + 1, checkpoints)[again], finished_at=run[again].started_at)
    known: RunScores = scores_of([*run[:again], old])
    rewritten = scores_of(run[again:], known)
    one, other = (judge(run[-1], scores, RunContext(), POLICY, now=NOW) for scores in (scores_of(run), rewritten))
    assert_same_reports(one, other)


@given(seeds, st.integers(3, 14))
def test_swapping_right_and_wrong_swaps_losses_and_gains(seed: int, checkpoints: int) -> None:
    table = flipping(seed, checkpoints, 40)
    one, other = (judged(run_of(*(row.tolist() for row in t))) for t in (table, 1 - table))
    a, b = (next(c for c in v.comparisons if (c.baseline, len(c.pooled_steps)) == _FIRST_TEST) for v in (one, other))
    assert a.delta == pytest.approx(-b.delta, abs=1e-12)
    assert (a.p_worse, a.stderr) == pytest.approx((b.p_better, b.stderr))
    assert (a.ci_low, a.ci_high) == pytest.approx((-b.ci_high, -b.ci_low))
    assert one.mde == pytest.approx(other.mde)


_FIRST_TEST = (Baseline.RECENT, 1)


@given(seeds, st.integers(2, 14), st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(seed: int, checkpoints: int, random: random_module.Random) -> None:
    run = table_run(seed, checkpoints)
    assert_same_reports(
        judge(run[-1], scores_of(run), RunContext(), POLICY, now=NOW),
        judge(run[-1], scores_of([_shuffled(r, random) for r in run]), RunContext(), POLICY, now=NOW),
    )


def _shuffled(record: EvalRecord, random: random_module.Random) -> EvalRecord:
    (result,) = record.outcomes
    assert isinstance(result, EvalResult)
    samples = list(result.samples)
    random.shuffle(samples)
    return replace(record, outcomes=(replace(result, samples=tuple(samples)),))


@pytest.mark.slow
@given(st.integers(20, 40), st.lists(st.integers(0, 20), min_size=2, max_size=6))
def test_more_lost_samples_never_look_better(level: int, losses: list[int]) -> None:
    badness = [W.IMPROVED, W.EQUIVALENT, W.INCONCLUSIVE, W.SUSPECT, W.REGRESSED]
    found = [judged(run_of(*[level] * 8, level - lost, n=40)) for lost in sorted(losses)]
    assert [badness.index(v.word) for v in found] == sorted(badness.index(v.word) for v in found)
    deltas = [v.comparisons[-1].delta for v in found]
    assert deltas == sorted(deltas, reverse=True)


@pytest.mark.slow
@given(counts)
def test_judging_a_step_again_says_the_same_and_changes_the_same(counts: list[int]) -> None:
    run = run_of(*counts, n=40)
    run_context = RunContext()
    for i, record in enumerate(run):
        scores = scores_of(run[: i + 1])
        report = judge(record, scores, run_context, POLICY, now=NOW)
        run_context = remembering(run_context, report)
        assert judge(record, scores, run_context, POLICY, now=NOW) == report


@given(counts)
def test_losses_are_told_apart_and_end_after_they_begin(counts: list[int]) -> None:
    reports = followed(run_of(*counts, n=40))
    run_context = remembering(RunContext(), *reports)
    for e in run_context.incidents:
        assert e.onset_step <= e.opened_step
        if e.closed_step is not None:
            assert e.last_step is not None
            assert e.opened_step <= e.last_step < e.closed_step
    assert _never_two_at_once(reports)


def _never_two_at_once(reports: Sequence[Report]) -> bool:
    is_open = False
    for e in changes_of(reports):
        if e.closed_step is None and not e.forgotten:
            if is_open:
                return False
            is_open = True
        elif e.closed_step is not None:
            is_open = False
    return True


@given(counts)
def test_numbers_that_are_shown_are_numbers(counts: list[int]) -> None:
    for report in followed(run_of(*counts, n=40)):
        for verdict in report.verdicts:
            assert all(abs(x) < 1e6 for x in numbers(verdict))
            for c in verdict.comparisons:
                assert c.ci_low <= c.ci_high
                assert 0 <= c.p_worse <= 1
                assert 0 <= c.p_better <= 1
                assert c.stderr > 0
