"""What a gate is given: the timing of a checkpoint, parts that are no coverage, and no noise that is none of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from eval_jobs.errors import ConfigError
from eval_jobs.identity import calibration_plan
from eval_jobs.types import EngineInfo, EvalRecord, EvalResult, ProbeResult, Screen, ScreenPart
from tests.fakes.history import FakeHistory
from tests.records import LOAD, forgetting_run
from tests.unit.tracker.domain.making import START, plan_of, record_of, suite_of
from tracker.app.commands.gate import gate_of, gathered, proposed
from tracker.domain.gate.rules import BenchmarkRule, GatedChange, GatePolicy, LatencyLimit
from tracker.domain.gate.types import GateWord
from tracker.domain.records.calibration import AskedTwice, Calibration, Fitness
from tracker.domain.records.types import LatencyMetric

LIMIT = LatencyLimit(metric=LatencyMetric.TTFT, quantile=0.95, max_ms=1_000)
LENIENT = GatePolicy(otherwise=BenchmarkRule(min_effect=0.2), latency=(LIMIT,))
RUN = forgetting_run(trouble=False)
SAME = [1.0] * 900 + [0.0] * 100


def screened(record: EvalRecord, left_out: int) -> EvalRecord:
    def part(outcome: object) -> EvalResult:
        assert isinstance(outcome, EvalResult)
        return replace(outcome, left_out=left_out, samples=outcome.samples[: len(outcome.samples) - left_out])

    return replace(record, outcomes=tuple(part(outcome) for outcome in record.outcomes))


def rest_of(record: EvalRecord, **changes: object) -> EvalRecord:
    """Return the record that a screen's rest becomes: all answers, and no timing."""
    suite = replace(record.plan.suite, part=ScreenPart(screen=Screen(samples=10), is_rest=True))
    return replace(record, plan=replace(record.plan, id="rest", suite=suite), probes=(), **changes)  # type: ignore[arg-type]


def _timings(record: EvalRecord) -> tuple[ProbeResult, ...]:
    return tuple(probe for probe in record.probes if isinstance(probe, ProbeResult))


def test_a_latency_limit_finds_the_timing_of_a_checkpoint_whose_newest_record_has_none() -> None:
    history, (before, after) = FakeHistory(), RUN.records[-2:]
    rest = rest_of(after, finished_at=after.finished_at + timedelta(hours=1))
    for record in (before, rest):
        history.append(record)
    (check,) = gate_of(gathered(rest, before, history, LENIENT)).latency
    assert (check.word, check.reason) == (GateWord.MISSING, "no latency measured under load default")
    history.append(after)
    slow = replace(after, plan=replace(after.plan, id="earlier"), finished_at=after.finished_at - timedelta(hours=1))
    history.append(replace(slow, probes=tuple(replace(p, ttft_ms=p.e2e_ms) for p in _timings(slow))))
    other = replace(after.plan, id="other", serve=replace(after.plan.serve, dtype="float16"))
    history.append(replace(after, plan=other, finished_at=after.finished_at + timedelta(hours=2)))
    (check,) = gate_of(gathered(rest, before, history, LENIENT)).latency
    (timed,) = _timings(after)
    assert timed.ttft_ms is not None
    assert check.limit.load == LOAD.name
    assert check.measured_ms == timed.ttft_ms.p95
    assert check.word is GateWord.PASS


@pytest.mark.parametrize("side", [0, 1])
def test_a_part_of_a_benchmark_is_no_coverage(side: int) -> None:
    sides = [record_of(step, {"sums": SAME}) for step in (1, 2)]
    policy = GatePolicy(benchmarks={"sums": BenchmarkRule(min_effect=0.05, floor=0.95)})
    sides[side] = screened(sides[side], 400)
    (check,) = gate_of(gathered(sides[1], sides[0], FakeHistory(), policy)).benchmarks
    if side == 0:  # the candidate's own score was measured whole
        assert (check.word, check.reason) == (GateWord.REGRESSION, "score 0.900 is below the `floor` of 0.950")
        policy = GatePolicy()
        (check,) = gate_of(gathered(sides[1], sides[0], FakeHistory(), policy)).benchmarks
    assert check.word is GateWord.MISSING
    assert "only 60 % of the samples evaluated on one side" in check.reason


def test_a_policy_may_say_that_a_part_is_enough() -> None:
    before, after = (screened(record_of(step, {"sums": SAME}), 200) for step in (1, 2))
    policy = GatePolicy(otherwise=BenchmarkRule(min_effect=0.05, min_coverage=0.8))
    assert gate_of(gathered(after, before, FakeHistory(), policy)).word is GateWord.PASS


def twice(benchmark: str, fingerprint: str = "f", flips: int = 1) -> AskedTwice:
    return AskedTwice(
        benchmark=benchmark,
        fingerprint=fingerprint,
        planned=1000,
        samples=1000,
        flips=flips,
        other_texts=0,
        squares=float(flips),
        largest=1.0,
        first_mean=0.9,
        second_mean=0.9,
        p_shift=1.0,
    )


@pytest.mark.parametrize(("min_effect", "fitness"), [(0.1, Fitness.FIT), (0.001, Fitness.UNFIT)])
def test_whether_a_calibration_is_fit_is_said_for_the_gates_own_smallest_effect(
    min_effect: float, fitness: Fitness
) -> None:
    engine = EngineInfo(name="vllm", version="1", load_method="cold", load_s=1.0, log="", machine="m")
    before, after = (replace(record_of(step, {"sums": SAME}), engine=engine) for step in (1, 2))
    plan = calibration_plan(after.plan.checkpoint, after.plan.suite, after.plan.serve, 1)
    asked = twice("sums", after.outcomes[0].fingerprint, flips=100)
    history = FakeHistory()
    history.append_calibration(
        Calibration(plan=plan, engine=engine, benchmarks=(asked,), started_at=START, finished_at=START)
    )
    policy = GatePolicy(benchmarks={"sums": BenchmarkRule(min_effect=min_effect)})
    (check,) = gate_of(gathered(after, before, history, policy)).benchmarks
    assert check.compared is not None
    assert check.compared.repetition is not None
    assert check.compared.repetition.fitness is fitness


def test_only_what_is_known_of_the_two_sides_benchmarks_goes_into_a_case() -> None:
    def calibration(number: int, *names: str) -> Calibration:
        plan = replace(plan_of(number, suite_of(names, prompt_template="secret {question}")), id=f"c{number}")
        asked = tuple(map(twice, names))
        return Calibration(plan=plan, engine=None, benchmarks=asked, started_at=START, finished_at=START)

    history = FakeHistory()
    history.append_calibration(calibration(1, "sums", "unreleased"))
    history.append_calibration(calibration(2, "unreleased"))
    before, after = (record_of(step, {"sums": SAME}) for step in (1, 2))
    (kept,) = gathered(after, before, history, GatePolicy()).noise.calibrations
    assert [one.benchmark for one in kept.benchmarks] == ["sums"]
    assert [one.name for one in kept.plan.suite.benchmarks] == ["sums"]


def test_a_policy_is_proposed_from_the_newest_whole_results_of_each_checkpoint() -> None:
    history = FakeHistory()
    for record in (*RUN.records, screened(replace(RUN.records[-1], plan=replace(RUN.records[-1].plan, id="part")), 40)):
        history.append(record)
    found = proposed(RUN.run_id, ("facts", "sums", "absent"), history, GatePolicy(alpha=0.02))
    assert (found.steps, found.alpha) == ((500, 600, 700, 800, 900, 1000), 0.02)
    assert [(rule.benchmark, rule.samples) for rule in found.rules] == [("facts", 80), ("sums", 80), ("absent", 0)]
    assert all(rule.jitter for rule in found.gated)


@pytest.mark.parametrize(
    ("records", "words", "hint"),
    [
        ((), "run has 0 evaluated checkpoints, and a policy needs two", "evaluate another one with `tracker watch`"),
        ((record_of(1, {"sums": SAME}),), "run has 1 evaluated checkpoint, and a policy needs two", "how many answers"),
        ((record_of(1, {"other": SAME}), record_of(2, {"other": SAME})), "run has 0 evaluated checkpoints", "watch"),
        (
            (record_of(1, {"sums": [1.0, 0.0]}), record_of(2, {"sums": [1.0, 0.0]})),
            "too few samples for a gate: sums (2)",
            "raise `limit` or use a larger benchmark",
        ),
    ],
)
def test_too_little_for_a_policy_is_refused_with_what_to_do(
    records: tuple[EvalRecord, ...], words: str, hint: str
) -> None:
    history = FakeHistory()
    for record in records:
        history.append(record)
    with pytest.raises(ConfigError) as caught:
        proposed("run", ("sums",), history, GatePolicy())
    assert words in caught.value.message
    assert hint in caught.value.hint


def test_a_change_that_is_named_and_not_there_is_a_wrong_call() -> None:
    before, after = (record_of(step, {"sums": SAME}) for step in (1, 2))
    with pytest.raises(ConfigError, match="prompt is declared as changed but is the same on both sides"):
        gathered(after, before, FakeHistory(), GatePolicy(changed=(GatedChange.PROMPT,)))
