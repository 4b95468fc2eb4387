"""`tracker calibrate`: a checkpoint is asked twice on the way of every evaluation, and nothing of it is a result."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from eval_jobs.errors import EndpointFailed
from eval_jobs.execute.worker.passes import run_asked
from eval_jobs.identity import make_plan, screen_plan
from eval_jobs.queue.rules import lease_end
from eval_jobs.queue_types import QueueState
from eval_jobs.run import Tools
from eval_jobs.types import Benchmark, Checkpoint, Cost, Endpoint, EngineInfo, EvalPlan, Screen, Suite
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.killing import Killed
from tests.unit.tracker.app.fake_world import FakeWorld
from tracker.app.commands.calibrate import calibration_estimate, next_calibration, run_calibration
from tracker.app.steps.calibrating import CalibrationContext
from tracker.app.tick import tick
from tracker.app.world import WatchState, World
from tracker.domain.records.alerts import AlertState, alert_subject_text
from tracker.domain.records.calibration import Calibration

ROWS = 100
INFO = EngineInfo(name="fake", version="1", load_method="cold", load_s=0.5, log="", machine="m")
ENDPOINT = Endpoint(base_url="http://127.0.0.1:1/v1", model="m", api_key_env="", info=INFO)

Answer = Callable[[str], str]


class Flipping:
    """Right the first time that a question is asked; wrong the second time, for the first so many of them."""

    def __init__(self, flips: int) -> None:
        self.flips = flips
        self.asked: dict[str, int] = {}

    def __call__(self, question: str) -> str:
        self.asked[question] = self.asked.get(question, 0) + 1
        number = question.removeprefix("number ")
        return "no idea" if self.asked[question] == 2 and int(number) < self.flips else number


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    data = tmp_path / "numbers.jsonl"
    rows = [{"question": f"number {i}", "answer": str(i)} for i in range(ROWS)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Suite(name="skills", benchmarks=(Benchmark(name="numbers", adapter="exact", data=str(data)),))


class Site:
    """A fake world with a checkpoint, and one worker that asks `answer`."""

    def __init__(self, suite: Suite, answer: Answer) -> None:
        self.fakes = FakeWorld()
        world = self.fakes.world()
        self.world: World = replace(world, measurement=replace(world.measurement, suites=(suite,), loads=()))
        self.suite, self.serve = suite, world.measurement.serve
        self.checkpoint: Checkpoint = self.fakes.run.records[2].plan.checkpoint
        self.context = CalibrationContext(
            queue=self.fakes.queue,
            calibrations=self.fakes.history,
            policy=world.policy,
            dispatcher=world.dispatcher,
        )
        self.answer = answer
        self.evaluator = FakeEvaluator(answer)
        self.tools = Tools(
            engine=FakeEngine(ENDPOINT), evaluator=self.evaluator, prober=FakeProber(), clock=self.fakes.clock
        )

    def next_plan(self) -> EvalPlan:
        return next_calibration(self.fakes.history, self.checkpoint, self.suite, self.serve)

    def calibrated(self, meanwhile: Callable[[QueueState], None] | None = None) -> Calibration:
        return run_calibration(
            self.next_plan(), self.context, clock=self.fakes.clock, meanwhile=meanwhile or (lambda _: self.work())
        )

    def work(self) -> None:
        """Carry out the next plan as a worker does; one that was interrupted gives it back."""
        now, queue = self.fakes.clock.now(), self.fakes.queue
        claim = queue.claim(worker="w", now=now, lease_until=lease_end(now))
        if claim is None:
            return
        try:
            record = run_asked(claim.plan, tools=self.tools, progress=lambda _: None)
        except Killed:
            queue.release(claim, counts=False)
            return
        queue.finish(claim, record, now=now)


def test_what_flips_is_counted_and_nothing_of_it_is_a_result_of_the_run(suite: Suite) -> None:
    answer = Flipping(7)
    site = Site(suite, answer)
    calibration = site.calibrated()
    (numbers,) = calibration.benchmarks
    assert (numbers.samples, numbers.flips, numbers.other_texts) == (ROWS, 7, 0)
    assert set(answer.asked.values()) == {2}
    history = site.fakes.history
    assert history.calibrations() == (calibration,)
    assert history.runs() == ()
    assert history.records(site.checkpoint.run_id) == ()
    assert history.reports(site.checkpoint.run_id) == ()
    assert not any(site.fakes.queue.state().counts.values())


def test_an_ordinary_evaluation_before_it_answers_no_question_of_it(suite: Suite) -> None:
    answer = Flipping(0)
    site = Site(suite, answer)
    ordinary = make_plan(site.checkpoint, suite, site.serve, ())
    site.fakes.queue.add(ordinary, now=site.fakes.clock.now())
    site.work()
    assert set(answer.asked.values()) == {1}
    site.calibrated()
    assert set(answer.asked.values()) == {3}
    passed = tick(site.world, WatchState(), site.fakes.clock.now())
    assert [report.plan_id for report in passed.reports] == [ordinary.id]


def test_an_interrupted_calibration_goes_on_where_it_was(suite: Suite) -> None:
    stopped_at = ROWS + 30

    class Stopping(Flipping):
        def __call__(self, question: str) -> str:
            if sum(self.asked.values()) == stopped_at:
                self.asked["the interruption"] = 1
                raise Killed
            return super().__call__(question)

    answer = Stopping(5)
    site = Site(suite, answer)

    def once(state: QueueState) -> None:
        if not state.waiting and not state.running:
            return
        site.work()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.calibrated(once)
    first = site.next_plan()
    assert site.fakes.queue.state().counts["waiting"] == 1  # a watcher would go on with it too
    calibration = site.calibrated()
    assert calibration.plan == first
    asked = {question: times for question, times in answer.asked.items() if question.startswith("number")}
    assert set(asked.values()) == {2}
    assert calibration.benchmarks[0].flips == 5


def test_another_calibration_of_the_same_checkpoint_asks_everything_anew(suite: Suite) -> None:
    site = Site(suite, Flipping(5))
    one, other = site.calibrated(), site.calibrated()
    assert (one.plan.calibration, other.plan.calibration) == (1, 2)
    assert (one.benchmarks[0].flips, other.benchmarks[0].flips) == (5, 0)
    assert len(site.fakes.history.calibrations()) == 2


def test_it_comes_before_the_checkpoints_that_wait_and_is_never_skipped(suite: Suite) -> None:
    site = Site(suite, Flipping(0))
    for record in site.fakes.run.records:
        site.fakes.queue.add(record.plan, now=site.fakes.clock.now())
    plan = site.next_plan()
    claimed: list[str] = []

    def meanwhile(_: QueueState) -> None:
        site.fakes.queue.skip(site.checkpoint.run_id, max_waiting=0)
        now = site.fakes.clock.now()
        claim = site.fakes.queue.claim(worker="w", now=now, lease_until=lease_end(now))
        assert claim is not None
        claimed.append(claim.plan.id)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.calibrated(meanwhile)
    assert claimed == [plan.id]


def test_a_watcher_takes_a_calibration_over_and_judges_nothing_by_it(suite: Suite) -> None:
    site = Site(suite, Flipping(9))

    def watching(_: QueueState) -> None:
        site.work()
        passed = tick(site.world, WatchState(), site.fakes.clock.now())
        assert [c.benchmarks[0].flips for c in passed.calibrations] == [9]
        assert passed.reports == ()

    calibration = site.calibrated(watching)
    assert site.fakes.history.calibrations() == (calibration,)
    assert not any(site.fakes.queue.state().counts.values())
    assert tick(site.world, WatchState(), site.fakes.clock.now()).calibrations == ()


def test_taking_over_twice_keeps_one_calibration_and_tells_once(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the history and the queue repeats it."""
    site = Site(suite, Flipping(40))
    queue = site.fakes.queue
    queue.add(site.next_plan(), now=site.fakes.clock.now())
    site.work()
    monkeypatch.setattr(queue, "acknowledge", lambda _: None)
    for _ in range(2):
        assert len(tick(site.world, WatchState(), site.fakes.clock.now()).calibrations) == 1
    assert len(site.fakes.history.calibrations()) == 1
    assert [alert.state for alert in site.fakes.alerting.alerts] == [AlertState.FIRING]


def test_an_unfit_benchmark_is_told_once_and_resolved_when_it_is_fit_again(suite: Suite) -> None:
    answer = Flipping(40)
    site = Site(suite, answer)
    for flips in (40, 40, 0, 0, 40):
        answer.flips, answer.asked = flips, {}
        site.calibrated()
    told = site.fakes.alerting.alerts
    assert [alert.state for alert in told] == [AlertState.FIRING, AlertState.RESOLVED, AlertState.FIRING]
    assert {(alert_subject_text(alert.subject), alert.run_id, alert.step) for alert in told} == {
        ("numbers", site.checkpoint.run_id, site.checkpoint.step)
    }
    assert len({alert.fingerprint for alert in told}) == 1
    assert told[0].message == (
        "numbers is too noisy: repeated evaluations differ by 0.400 on average, more than policy.min_effect 0.01"
    )
    assert [a.state for a in site.fakes.history.open_alerts(site.checkpoint.run_id)] == [AlertState.FIRING]


def test_a_suite_that_was_mended_by_other_settings_ends_the_alert(suite: Suite) -> None:
    answer = Flipping(40)
    site = Site(suite, answer)
    site.calibrated()
    answer.flips, answer.asked = 0, {}
    site.suite = replace(suite, concurrency=1)
    site.calibrated()
    assert [a.state for a in site.fakes.alerting.alerts] == [AlertState.FIRING, AlertState.RESOLVED]


def test_a_calibration_that_fails_is_kept_as_such_and_the_next_one_asks_anew(suite: Suite) -> None:
    is_away = True

    def answer(question: str) -> str:
        if is_away:
            raise EndpointFailed("the server is away", hint="start it")
        return question

    site = Site(suite, answer)
    failed = site.calibrated()
    assert (failed.benchmarks, [f.code for f in failed.failures]) == ((), ["E-EVAL-ENDPOINT"])
    is_away = False
    assert site.calibrated().plan.calibration == 2
    assert site.fakes.alerting.alerts == []


def test_what_it_will_cost_is_told_by_the_newest_evaluation_of_the_same(suite: Suite) -> None:
    site = Site(suite, Flipping(0))
    spent = Cost(loading_s=1.0, evaluating_s=3 * 3.2, probing_s=0.0)
    records = tuple(replace(record, cost=spent) for record in site.fakes.run.records)
    by_id = {record.plan.id: record for record in records}
    assert calibration_estimate(site.next_plan(), records, by_id.get) is None  # another suite
    plan = next_calibration(site.fakes.history, site.checkpoint, records[0].plan.suite, records[0].plan.serve)
    cost = calibration_estimate(plan, records, by_id.get)
    assert cost is not None
    newest = records[-1]
    assert newest.engine is not None
    assert (cost.step, cost.answers) == (newest.plan.checkpoint.step, 2 * 3 * 80)
    assert cost.load_s == 2 * newest.engine.load_s
    assert cost.scoring_s == pytest.approx(2 * spent.evaluating_s)
    assert calibration_estimate(plan, (), by_id.get) is None
    screen = screen_plan(newest.plan, Screen(samples=10))
    later = replace(newest, plan=screen, finished_at=newest.finished_at + timedelta(days=1))
    assert calibration_estimate(plan, (*records, later), by_id.get) == cost  # a part of the samples costs less
