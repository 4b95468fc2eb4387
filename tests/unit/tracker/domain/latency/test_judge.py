"""Latency verdicts: the words, what they are compared with, and what they say."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalRecord, ProbeFailure, ProbeLoad, ReferenceProbe, ServeSpec
from tests.unit.tracker.domain.latency_records import (
    LOAD,
    REFERENCE_STEP,
    alone,
    interleaved,
    session_ms,
    with_engine,
)
from tracker.domain.latency.judge import judge_latency
from tracker.domain.records.policy import LatencyPolicy
from tracker.domain.records.reason_text import latency_reason_text
from tracker.domain.records.types import LatencyMethod, LatencyMetric, LatencyVerdict, VerdictWord

POLICY = LatencyPolicy(planned_checkpoints=20)


def sessions(count: int, *, slow: float = 1.0, from_step: int = 1, seed: int = 0) -> list[EvalRecord]:
    rng = np.random.default_rng([seed, from_step])
    pairs = [session_ms(rng, slow=slow) for _ in range(count)]
    return [interleaved(from_step + i, a.tolist(), b.tolist()) for i, (a, b) in enumerate(pairs)]


def quiet_alone(count: int, *, slow: float = 1.0, from_step: int = 1, requests: int = 200) -> list[EvalRecord]:
    rng = np.random.default_rng([1, from_step])
    times = 200 * slow * np.exp(0.2 * rng.standard_normal((count, requests)))
    return [alone(from_step + i, row) for i, row in enumerate(times.tolist())]


def judged(record: EvalRecord, earlier: Sequence[EvalRecord] = ()) -> dict[tuple[LatencyMetric, float], LatencyVerdict]:
    return {(v.metric, v.quantile): v for v in judge_latency(record, earlier, POLICY)}


def words(record: EvalRecord, earlier: Sequence[EvalRecord] = ()) -> set[VerdictWord]:
    return {v.word for v in judge_latency(record, earlier, POLICY)}


# --- with a reference


def test_a_much_slower_checkpoint_is_found_at_once_and_with_its_evidence() -> None:
    [slow] = sessions(1, slow=1.6, from_step=50)
    verdict = judged(slow, sessions(12))[LatencyMetric.E2E, 0.5]
    assert (verdict.word, verdict.method) == (VerdictWord.REGRESSED, LatencyMethod.INTERLEAVED)
    assert (verdict.reference_step, verdict.requests, verdict.sessions) == (REFERENCE_STEP, 200, 1)
    assert verdict.ratio is not None
    assert verdict.ci_low is not None
    assert verdict.ci_high is not None
    assert verdict.p_slower is not None
    assert verdict.candidate_ms is not None
    assert verdict.baseline_ms is not None
    assert verdict.ratio == pytest.approx(verdict.candidate_ms / verdict.baseline_ms)
    assert 1.4 < verdict.ci_low < verdict.ratio < verdict.ci_high < 1.9
    assert verdict.p_slower < verdict.alpha_test == pytest.approx(0.05 / (20 * 3 * 2 * 3))
    assert latency_reason_text(verdict).startswith(f"{100 * (verdict.ratio - 1):.1f} % slower (95 % CI +")
    assert "than the reference, step 0" in latency_reason_text(verdict)


def test_until_the_noise_is_known_a_slow_checkpoint_is_at_most_suspect_and_a_fast_one_nothing() -> None:
    [slow], [fast] = sessions(1, slow=3.0, from_step=50), sessions(1, slow=1 / 3, from_step=50)
    for earlier, slow_words, fast_words in (
        (4, {VerdictWord.SUSPECT}, {VerdictWord.INCONCLUSIVE}),
        (5, {VerdictWord.REGRESSED}, {VerdictWord.IMPROVED}),
    ):
        assert words(slow, sessions(earlier)) == slow_words
        assert words(fast, sessions(earlier)) == fast_words
    verdict = judged(slow, sessions(4))[LatencyMetric.E2E, 0.5]
    assert verdict.learned_from == 4
    assert latency_reason_text(verdict).endswith(": noise between engine starts not known yet (4 of 5 checkpoints)")


def test_a_faster_checkpoint_is_an_improvement() -> None:
    [fast] = sessions(1, slow=1 / 1.6, from_step=50)
    verdict = judged(fast, sessions(12))[LatencyMetric.TTFT, 0.5]
    assert verdict.word is VerdictWord.IMPROVED
    assert "% faster" in latency_reason_text(verdict)


def test_a_small_slowdown_is_confirmed_by_the_checkpoints_after_it() -> None:
    healthy, slow = sessions(15, seed=1), sessions(4, slow=1.1, from_step=50, seed=1)
    found = [judged(r, healthy + slow[:i])[LatencyMetric.E2E, 0.5] for i, r in enumerate(slow)]
    assert found[0].word is not VerdictWord.REGRESSED
    assert found[-1].word is VerdictWord.REGRESSED
    assert found[-1].sessions > 1
    assert f"averaged over the newest {found[-1].sessions} checkpoints" in latency_reason_text(found[-1])


@pytest.mark.slow
def test_a_slowdown_that_stays_is_not_taken_for_noise_in_the_end() -> None:
    run = sessions(10) + sessions(30, slow=1.5, from_step=50)
    assert judged(run[-1], run[:-1])[LatencyMetric.E2E, 0.5].word is VerdictWord.REGRESSED


def test_after_a_slowdown_the_first_healthy_checkpoint_is_not_blamed_for_it() -> None:
    run = sessions(10) + sessions(3, slow=1.5, from_step=50)
    [healthy] = sessions(1, from_step=60)
    assert VerdictWord.REGRESSED not in words(healthy, run)


def test_equal_sides_say_how_small_a_slowdown_could_hide() -> None:
    [healthy] = sessions(1, from_step=60)
    verdict = judged(healthy, sessions(12))[LatencyMetric.TPOT, 0.5]
    assert verdict.word is VerdictWord.INCONCLUSIVE
    assert verdict.detectable is not None
    assert 1.03 < verdict.detectable < 1.3
    assert f"minimum detectable slowdown +{100 * (verdict.detectable - 1):.1f} %" in latency_reason_text(verdict)


def test_no_verdict_from_too_few_pairs() -> None:
    [slow] = sessions(1, slow=3.0, from_step=50)
    fewer = replace(slow, reference_probes=(_cut(slow, 150),))
    found = judged(fewer, sessions(5))
    assert found[LatencyMetric.E2E, 0.5].word is VerdictWord.REGRESSED
    assert found[LatencyMetric.E2E, 0.95].word is VerdictWord.INCONCLUSIVE
    assert found[LatencyMetric.E2E, 0.95].ratio is None
    assert "150 pairs, 200 required; raise probe.requests to 100" in (
        latency_reason_text(found[LatencyMetric.E2E, 0.95])
    )
    assert words(replace(slow, reference_probes=(_cut(slow, 99),))) == {VerdictWord.INCONCLUSIVE}


def test_no_verdict_when_one_half_was_lost() -> None:
    [slow] = sessions(1, slow=3.0)
    lost = replace(slow, reference_probes=(replace(_cut(slow, 200), first_pairs=180),))
    assert words(lost) == {VerdictWord.INCONCLUSIVE}
    assert "almost all 200 pairs of requests are from one" in latency_reason_text(judged(lost)[LatencyMetric.E2E, 0.5])


def test_requests_of_unknown_length_leave_tpot_out_and_nothing_else() -> None:
    [slow] = sessions(1, slow=3.0, from_step=50)
    probe = _cut(slow, 200)
    bare = tuple(replace(t, tpot_ms=None) for t in probe.reference)
    found = judged(replace(slow, reference_probes=(replace(probe, reference=bare),)), sessions(5))
    assert found[LatencyMetric.TPOT, 0.5].word is VerdictWord.INCONCLUSIVE
    assert found[LatencyMetric.TPOT, 0.5].requests == 0
    assert found[LatencyMetric.E2E, 0.5].word is VerdictWord.REGRESSED


@pytest.mark.parametrize("slow", [1.0, 2.0, 0.5])
def test_no_verdict_from_constant_times(slow: float) -> None:
    constant = interleaved(9, [200.0 * slow] * 200, [200.0] * 200)
    assert words(constant, sessions(5)) == {VerdictWord.INCONCLUSIVE}
    [healthy] = sessions(1, from_step=60)
    assert judge_latency(healthy, [*sessions(5), constant], POLICY) == judge_latency(healthy, sessions(5), POLICY)


@pytest.mark.slow
@given(st.randoms(use_true_random=False), st.integers(0, 20))
def test_neither_the_order_of_earlier_records_nor_later_ones_matter(shuffle: random.Random, place: int) -> None:
    earlier = list(RUN[:20])
    shuffle.shuffle(earlier)
    earlier[place:place] = RUN[20:]
    assert judge_latency(RUN[20], earlier, POLICY) == judge_latency(RUN[20], RUN[:20], POLICY)


RUN = sessions(21) + sessions(5, slow=2.0, from_step=100)


def test_exchanging_the_sides_exchanges_the_two_directions() -> None:
    [slow] = sessions(1, slow=1.1)
    probe = _cut(slow, 200)
    swapped = replace(slow, reference_probes=(replace(probe, candidate=probe.reference, reference=probe.candidate),))
    for key, here in judged(slow).items():
        there = judged(swapped)[key]
        assert here.ratio is not None
        assert there.ratio == pytest.approx(1 / here.ratio)
        assert there.p_slower == pytest.approx(here.p_faster)
        assert here.ci_low is not None
        assert there.ci_high == pytest.approx(1 / here.ci_low)


def _cut(record: EvalRecord, pairs: int) -> ReferenceProbe:
    probe = record.reference_probes[0]
    assert isinstance(probe, ReferenceProbe)
    return replace(probe, candidate=probe.candidate[:pairs], reference=probe.reference[:pairs])


# --- series


@pytest.mark.parametrize("change", [{"machine": "m2"}, {"version": "0.33.0"}, {"name": "other"}])
def test_another_machine_or_engine_begins_a_new_series(change: dict[str, str]) -> None:
    [here] = sessions(1, from_step=60)
    noisy = [with_engine(r, **change) for r in sessions(12)]
    assert judge_latency(here, noisy, POLICY) == judge_latency(here, (), POLICY)
    assert judge_latency(here, sessions(12), POLICY) != judge_latency(here, (), POLICY)


def test_another_load_reference_serving_or_run_begins_a_new_series() -> None:
    [here] = sessions(1, from_step=60)
    for other in (_other_load, _other_reference, _other_serving, _other_run):
        assert judge_latency(here, [other(r) for r in sessions(12)], POLICY) == judge_latency(here, (), POLICY)


def _other_load(record: EvalRecord) -> EvalRecord:
    return replace(record, reference_probes=(replace(_cut(record, 200), load=replace(LOAD, concurrency=9)),))


def _other_reference(record: EvalRecord) -> EvalRecord:
    return replace(record, reference_probes=(replace(_cut(record, 200), reference_digest="other"),))


def _other_serving(record: EvalRecord) -> EvalRecord:
    return replace(record, plan=replace(record.plan, serve=ServeSpec(dtype="float32")))


def _other_run(record: EvalRecord) -> EvalRecord:
    return replace(record, plan=replace(record.plan, checkpoint=replace(record.plan.checkpoint, run_id="other")))


# --- without a reference


def test_without_a_reference_a_slow_checkpoint_is_at_most_suspect() -> None:
    [slow] = quiet_alone(1, slow=3.0, from_step=50)
    assert words(slow, quiet_alone(20)) == {VerdictWord.SUSPECT}
    verdict = judged(slow, quiet_alone(20))[LatencyMetric.E2E, 0.95]
    assert (verdict.method, verdict.alpha_test, verdict.overdispersion) == (LatencyMethod.HISTORY, 0.01, None)
    assert verdict.candidate_ms is not None
    assert verdict.baseline_ms is not None
    assert verdict.ratio == pytest.approx(verdict.candidate_ms / verdict.baseline_ms)
    assert "set probe.reference to rule that out" in latency_reason_text(verdict)


def test_without_a_reference_a_fast_checkpoint_says_nothing() -> None:
    [fast] = quiet_alone(1, slow=0.3, from_step=50)
    assert words(fast, quiet_alone(20)) == {VerdictWord.INCONCLUSIVE}


def test_a_history_begins_with_first_and_is_too_short_for_a_while() -> None:
    run = quiet_alone(11)
    assert words(run[0]) == {VerdictWord.FIRST}
    assert words(run[9], run[:9]) == {VerdictWord.INCONCLUSIVE}
    verdict = judged(run[9], run[:9])[LatencyMetric.TTFT, 0.5]
    assert (verdict.ratio, latency_reason_text(verdict)[:32]) == (None, "9 comparable earlier checkpoints")
    assert judged(run[10], run[:10])[LatencyMetric.TTFT, 0.5].ratio is not None


def test_a_constant_history_says_nothing_of_the_next_constant() -> None:
    run = [alone(step, [200.0] * 200) for step in range(1, 21)]
    assert words(run[-1], run[:-1]) == {VerdictWord.INCONCLUSIVE}


def test_too_few_requests_say_how_many_are_needed() -> None:
    [record] = quiet_alone(1, requests=32)
    found = judged(record)
    assert words(record) == {VerdictWord.INCONCLUSIVE}
    assert "timed, not judged: 32 requests, 100 required; raise probe.requests to 100" in latency_reason_text(
        found[LatencyMetric.E2E, 0.5]
    )
    assert "raise probe.requests to 200" in latency_reason_text(found[LatencyMetric.E2E, 0.95])


# --- what failed


def test_a_reference_that_failed_leaves_the_history_and_says_why() -> None:
    [slow] = quiet_alone(1, slow=3.0, from_step=50)
    failure = ProbeFailure(load=LOAD, code="E-SERVE-DIED", message="the engine ended", hint="see its log")
    spoiled = replace(slow, reference_probes=(failure,))
    verdict = judged(spoiled, quiet_alone(20))[LatencyMetric.E2E, 0.5]
    assert (verdict.word, verdict.method) == (VerdictWord.SUSPECT, LatencyMethod.HISTORY)
    assert latency_reason_text(verdict).endswith("no comparison with the reference: the engine ended (E-SERVE-DIED)")


def test_a_load_that_could_not_be_timed_is_missing_with_its_reason() -> None:
    [record] = quiet_alone(1)
    failure = ProbeFailure(load=LOAD, code="E-PROBE", message="all requests failed", hint="see the log")
    verdict = judged(replace(record, probes=(failure,)))[LatencyMetric.E2E, 0.5]
    assert (verdict.word, verdict.requests) == (VerdictWord.MISSING, 0)
    assert latency_reason_text(verdict) == "not measured: all requests failed (E-PROBE)"


def test_without_a_load_there_is_no_verdict_and_two_loads_share_the_level() -> None:
    [record] = sessions(1)
    assert judge_latency(replace(record, plan=replace(record.plan, loads=())), (), POLICY) == ()
    two = replace(record, plan=replace(record.plan, loads=(LOAD, ProbeLoad(name="other"))))
    verdicts = judge_latency(two, (), POLICY)
    assert [v.load for v in verdicts] == ["default"] * 6 + ["other"] * 6
    assert verdicts[0].alpha_test == pytest.approx(0.05 / (20 * 3 * 2 * 3) / 2)
    assert {v.word for v in verdicts[6:]} == {VerdictWord.MISSING}


def test_the_same_record_always_says_the_same_and_another_plan_draws_otherwise() -> None:
    [record] = sessions(1)
    again = replace(record, plan=replace(record.plan, id="other"))
    here, there = judged(record)[LatencyMetric.E2E, 0.5], judged(again)[LatencyMetric.E2E, 0.5]
    assert judged(record)[LatencyMetric.E2E, 0.5] == here
    assert here.ratio == there.ratio
    assert here.p_slower != there.p_slower
    assert here.p_slower == pytest.approx(there.p_slower, abs=0.2)
