"""A part of each benchmark first: who is asked whole, what a suspicion leads to, and that nothing is asked twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest

from eval_jobs.identity import benchmark_fingerprint, make_plan
from eval_jobs.queue.rules import lease_end
from eval_jobs.screening import Question, screen_of
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Checkpoint,
    CheckpointFormat,
    EvalPlan,
    EvalRecord,
    EvalResult,
    Outcome,
    Part,
    SampleScore,
    SampleStatus,
    Screen,
    ServeSpec,
    Suite,
)
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.pipeline import Measurement, World, review, tick
from tracker.domain.screening import Screening, savings_of
from tracker.domain.types import AlertState, Policy, VerdictWord

RUN = "screened"
START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
SAMPLES = 400
SUITE = Suite(
    name="default",
    benchmarks=(Benchmark(name="sums", adapter="exact"), Benchmark(name="facts", adapter="exact")),
)
SCREENING = Screening(screen=Screen(samples=100), every=5, first=12)
LOST_AT = 2000


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(
        run_id=RUN,
        step=step,
        uri=f"/pins/{step}",
        source_uri=f"/out/checkpoint-{step}",
        format=CheckpointFormat.FULL,
        digest=f"{step:064d}",
        ready_at=START + timedelta(minutes=step),
    )


def is_right(benchmark: str, key: int, step: int, lost_at: int | None) -> bool:
    """Say whether a sample is right: 70 of 100 at first, 3 of 100 change by chance; `sums` loses a quarter."""
    known = random.Random(f"{benchmark} {key}").random()  # noqa: S311 - no secret
    flips = random.Random(f"{benchmark} {key} {step}").random() < 0.03  # noqa: S311 - no secret
    is_lost = lost_at is not None and benchmark == "sums" and step >= lost_at and key % 4 == 0
    return (known < 0.7 and not is_lost) is not flips


def questions_of(benchmark: str) -> list[Question]:
    return [Question(key=f"{benchmark}-{i}", subset="default") for i in range(SAMPLES)]


@cache
def hidden_from(benchmark: str) -> frozenset[str]:
    """Return the screen of a benchmark."""
    return screen_of(questions_of(benchmark), SCREENING.screen)


@dataclass(kw_only=True)
class Bench:
    """A world with a worker that asks what a plan says, and counts how often it asks each sample."""

    screening: Screening | None = SCREENING
    lost_at: int | None = None
    is_hidden: bool = False
    """The loss spares the screen."""
    fakes: FakeWorld = field(default_factory=FakeWorld)
    asked: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    plans: list[EvalPlan] = field(default_factory=list)
    records: dict[str, EvalRecord] = field(default_factory=dict)
    fails: Callable[[EvalPlan], bool] = lambda _: False
    _world: World | None = None

    @property
    def world(self) -> World:
        if self._world is None:
            self.start_again()
        assert self._world is not None
        return self._world

    def start_again(self) -> None:
        """Forget what a watcher keeps in memory."""
        self.fakes.source.start_again()
        measurement = Measurement(suites=(SUITE,), serve=ServeSpec(), loads=(), screening=self.screening)
        self._world = replace(
            self.fakes.world(), measurement=measurement, policy=Policy(planned_checkpoints=40, min_effect=0.01)
        )

    def use(self, world: World) -> None:
        """Go on in another world."""
        self._world = world

    def save(self, step: int) -> None:
        """Let the trainer write one checkpoint, and carry out all that follows."""
        self.fakes.source.put(checkpoint(step))
        self.settle()

    def settle(self) -> None:
        tick(self.world, self.fakes.clock.now())
        while self.work():
            tick(self.world, self.fakes.clock.now())

    def work(self, at_once: int = 1) -> bool:
        """Carry out the plans whose turn it is, by so many workers at the same time."""
        now = self.fakes.clock.now()
        claims = [self.fakes.queue.claim(worker=f"w{i}", now=now, lease_until=lease_end(now)) for i in range(at_once)]
        for claim in claims:
            if claim is not None:
                self.plans.append(claim.plan)
                self.fakes.clock.sleep(1.0)
                self.records[claim.plan.id] = self.record_of(claim.plan)
                assert self.fakes.queue.finish(claim, self.records[claim.plan.id], now=now)
        return any(claims)

    def record_of(self, plan: EvalPlan) -> EvalRecord:
        outcomes = tuple(self._outcome(plan, benchmark) for benchmark in plan.suite.benchmarks)
        at = self.fakes.clock.now()
        return EvalRecord(plan=plan, outcomes=outcomes, probes=(), engine=None, started_at=at, finished_at=at)

    def words(self, step: int) -> dict[str, VerdictWord]:
        """Return the newest word on every benchmark at a step."""
        reports = sorted((r for r in self.fakes.history.reports(RUN) if r.step == step), key=lambda r: r.created_at)
        return {v.benchmark: v.word for r in reports for v in r.verdicts}

    def kinds(self) -> list[str]:
        return [kind_of(plan) for plan in self.plans]

    def firing(self) -> list[int]:
        return [a.step for a in self.fakes.notifier.alerts if a.state is AlertState.FIRING]

    def _outcome(self, plan: EvalPlan, benchmark: Benchmark) -> Outcome:
        fingerprint = benchmark_fingerprint(benchmark, plan.suite)
        if self.fails(plan):
            return BenchmarkFailure(
                benchmark=benchmark.name, fingerprint=fingerprint, code="E-X", message="no", hint="", retryable=False
            )
        everything = questions_of(benchmark.name)
        part = plan.suite.part
        chosen = {q.key for q in everything} if part is None else screen_of(everything, part.screen)
        asked = [q for q in everything if (q.key in chosen) is not (part is not None and part.is_rest)]
        step = plan.checkpoint.step
        self.asked.update((step, benchmark.name, q.key) for q in asked)
        return EvalResult(
            benchmark=benchmark.name,
            fingerprint=fingerprint,
            metric="accuracy",
            samples=tuple(self._sample(benchmark.name, q.key, step) for q in asked),
            duration_s=len(asked) * 0.1,
            left_out=SAMPLES - len(asked),
            input_tokens=len(asked) * 10,
            output_tokens=len(asked) * 2,
        )

    def _sample(self, benchmark: str, key: str, step: int) -> SampleScore:
        is_spared = self.is_hidden and key in hidden_from(benchmark)
        right = is_right(benchmark, int(key.rpartition("-")[2]), step, None if is_spared else self.lost_at)
        return SampleScore(sample_id=key, subset="default", score=float(right), status=SampleStatus.SCORED)


def kind_of(plan: EvalPlan) -> str:
    """Return the step of a plan and how much it asks: `100 whole`, `200 screen` or `200 rest sums`."""
    part = plan.suite.part
    if part is None:
        return f"{plan.checkpoint.step} whole"
    if not part.is_rest:
        return f"{plan.checkpoint.step} screen"
    return f"{plan.checkpoint.step} rest {' '.join(b.name for b in plan.suite.benchmarks)}"


def through(bench: Bench, last: int) -> None:
    for step in range(100, last + 1, 100):
        bench.save(step)


def test_without_the_setting_plans_are_what_they_were() -> None:
    """The id and the plan of a project that knows nothing of screens, as an earlier version made them."""
    own = Checkpoint(
        run_id="run",
        step=100,
        uri="/pins/100",
        source_uri="/out/checkpoint-100",
        format=CheckpointFormat.FULL,
        digest="d" * 64,
        ready_at=START,
        files_digest="f" * 64,
    )
    data = Benchmark(name="sums", adapter="exact", data="/data/sums.jsonl", data_digest="a" * 64)
    suite = Suite(name="default", benchmarks=(data, Benchmark(name="gsm8k", adapter="gsm8k", limit=100)))
    plan = make_plan(own, suite, ServeSpec(), ())
    assert plan.id == "729e02eabbe9485e6e73d00b7e716dd5"
    screened = make_plan(own, replace(suite, part=Part(screen=Screen(samples=10))), ServeSpec(), ())
    assert screened.id != plan.id
    assert benchmark_fingerprint(data, screened.suite) == benchmark_fingerprint(data, plan.suite)


def test_the_first_checkpoints_and_every_fifth_are_asked_whole() -> None:
    bench = Bench()
    through(bench, 2400)
    firsts = [kind for kind in bench.kinds() if "rest" not in kind]
    whole = [int(kind.split()[0]) for kind in firsts if kind.endswith("whole")]
    assert whole == [*range(100, 1201, 100), 1700, 2200]
    assert [int(kind.split()[0]) for kind in firsts] == list(range(100, 2401, 100))


def test_without_the_setting_everything_is_asked_of_every_checkpoint() -> None:
    bench = Bench(screening=None)
    through(bench, 1500)
    assert bench.kinds() == [f"{step} whole" for step in range(100, 1501, 100)]
    assert all(v.screened is None for r in bench.fakes.history.reports(RUN) for v in r.verdicts)


def test_a_watcher_that_starts_again_plans_nothing_anew_and_keeps_the_rhythm() -> None:
    undisturbed, disturbed = Bench(), Bench()
    through(undisturbed, 2400)
    for step in range(100, 2401, 100):
        disturbed.start_again()
        disturbed.save(step)
    assert disturbed.kinds() == undisturbed.kinds()


def test_a_loss_is_seen_by_the_screen_asked_for_told_once_and_no_sample_is_asked_twice() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    assert bench.kinds()[-2:] == [f"{LOST_AT} screen", f"{LOST_AT} rest sums"]
    assert bench.words(LOST_AT)["sums"] is VerdictWord.REGRESSED
    assert bench.firing() == [LOST_AT]
    assert max(bench.asked.values()) == 1
    of_sums = sum(1 for step, name, _ in bench.asked if (step, name) == (LOST_AT, "sums"))
    of_facts = sum(1 for step, name, _ in bench.asked if (step, name) == (LOST_AT, "facts"))
    assert (of_sums, of_facts) == (SAMPLES, 100)


def test_both_parts_together_are_the_record_that_asking_everything_would_have_made() -> None:
    bench, always = Bench(lost_at=LOST_AT), Bench(lost_at=LOST_AT, screening=None)
    through(bench, LOST_AT)
    through(always, LOST_AT)
    row, other = (
        next(s for s in b.fakes.history.scores(RUN).series.values() if s.key.benchmark == "sums")
        for b in (bench, always)
    )
    assert row.key == other.key
    at, there = row.row_of(LOST_AT), other.row_of(LOST_AT)
    assert at is not None
    assert there is not None
    assert row.is_whole[at]
    means = {m: s.matrices[m].means for s in (row,) for m in s.matrices}
    assert all(means[m][at] == pytest.approx(other.matrices[m].means[there], nan_ok=True) for m in means)


def test_a_screen_opens_and_ends_no_loss() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT - 100)
    bench.fakes.source.put(checkpoint(LOST_AT))
    tick(bench.world, bench.fakes.clock.now())
    assert bench.work()
    tick(bench.world, bench.fakes.clock.now())
    verdict = next(v for v in bench.fakes.history.reports(RUN)[-1].verdicts if v.benchmark == "sums")
    assert verdict.word is VerdictWord.SUSPECT
    assert verdict.screened is not None
    assert (verdict.screened.asked, verdict.screened.left_out) == (100, SAMPLES - 100)
    assert verdict.reason.endswith("100 of 400 samples were asked, the others are asked next")
    assert not bench.fakes.history.episodes(RUN)
    assert not bench.firing()


def test_the_rest_comes_before_newer_checkpoints_and_decides_although_they_were_screened_since() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT - 100)
    for step in (LOST_AT, LOST_AT + 100):
        bench.fakes.source.put(checkpoint(step))
    tick(bench.world, bench.fakes.clock.now())
    assert bench.work(at_once=2)
    bench.settle()
    assert bench.kinds()[-4:] == [
        f"{LOST_AT} screen",
        f"{LOST_AT + 100} screen",
        f"{LOST_AT} rest sums",
        f"{LOST_AT + 100} rest sums",
    ]
    assert [e.opened_step for e in bench.fakes.history.episodes(RUN)] == [LOST_AT]
    assert len(bench.firing()) == 1


def test_a_record_that_is_judged_again_after_a_crash_changes_nothing() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    rest = next(plan for plan in bench.plans if plan.suite.part is not None and plan.suite.part.is_rest)
    before = bench.fakes.history.record(rest.id)
    alerts = list(bench.fakes.notifier.alerts)
    review(bench.world, bench.records[rest.id], bench.fakes.clock.now())
    assert bench.fakes.history.record(rest.id) == before
    assert bench.fakes.notifier.alerts == alerts
    assert not bench.work()


def test_a_rest_that_cannot_be_asked_is_a_blind_spot_and_not_a_score() -> None:
    bench = Bench(lost_at=LOST_AT, fails=lambda plan: plan.suite.part is not None and plan.suite.part.is_rest)
    through(bench, LOST_AT)
    assert bench.words(LOST_AT) == {"sums": VerdictWord.MISSING, "facts": bench.words(LOST_AT)["facts"]}
    last = bench.fakes.notifier.alerts[-1]
    assert (last.subject, last.step, last.state) == ("sums", LOST_AT, AlertState.FIRING)


def test_a_rest_whose_screen_is_gone_says_so() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    rest = next(plan for plan in bench.plans if plan.suite.part is not None and plan.suite.part.is_rest)
    lonely = Bench()
    report = review(lonely.world, bench.record_of(rest), bench.fakes.clock.now())
    assert [(v.word, "first part" in v.reason) for v in report.verdicts] == [(VerdictWord.MISSING, True)]


def test_what_was_saved_is_what_was_not_asked() -> None:
    bench = Bench()
    through(bench, 2400)
    reports = sorted(bench.fakes.history.reports(RUN), key=lambda r: r.created_at)
    newest = {(r.step, v.benchmark): v for r in reports for v in r.verdicts}
    savings = savings_of(newest.values())
    assert savings is not None
    everything = 24 * 2 * SAMPLES
    assert savings.samples == everything - sum(bench.asked.values()) > everything / 4
    assert savings.tokens == savings.samples * 12
    assert savings.seconds == pytest.approx(savings.samples * 0.1)
    assert savings.results == 48
