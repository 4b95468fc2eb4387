"""Settings that are changed and changed back: the run goes on as if nothing had happened."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from tests.killing import Killed
from tests.unit.tracker.app.changing_bench import QUESTIONS, RUN, Changing
from tests.unit.tracker.app.fake_world import FakeWorld
from tests.unit.tracker.app.test_tick import Fuse, cut
from tests.unit.tracker.domain.judging import NOW
from tests.unit.tracker.domain.making import record_of, suite_of
from tracker.app.commands.accept import accept
from tracker.app.review import review
from tracker.app.settings_change import restore
from tracker.domain.log.events import EventKind
from tracker.domain.records.losses import Acceptance, Closing, Incident
from tracker.domain.records.policy import Policy
from tracker.domain.records.reasons import NothingEarlier
from tracker.domain.records.types import VerdictWord
from tracker.domain.scores.series_changes import change_lines

SHORT, LONG = {"sums": 8, "facts": 8}, {"sums": 16, "facts": 8}
STEPS, LOST_AT = (100, 200, 300, 400, 500, 600, 700, 800), 600
CHANGES = [
    "settings changed: sums max_tokens 8 -> 16, series 2 begins",
    "settings changed: sums max_tokens 16 -> 8, series 1 continues",
]


def is_right(benchmark: str, number: int, step: int, max_tokens: int) -> bool:
    """`sums` is lost with short answers, and with long ones it never was."""
    return number < (4 if benchmark == "sums" and max_tokens == 8 and step >= LOST_AT else 36)


def run_until(folder: Path, step: int) -> Changing:
    folder.mkdir(exist_ok=True)
    run = Changing(folder, is_right)
    for one in STEPS:
        if one <= step:
            run.save(one)
            run.watch(SHORT)
    return run


def opened(run: Changing) -> list[Incident]:
    return [e for e in run.history.incidents(RUN) if e.closed_step is None]


def test_settings_that_come_back_restore_verdicts_losses_and_alerts(tmp_path: Path) -> None:
    run, other = run_until(tmp_path / "changed", 700), run_until(tmp_path / "same", 700)
    before, loss = run.reports(), opened(run)
    assert [e.opened_step for e in loss] == [600]
    assert run.asked
    run.watch(LONG, wait_s=0.0)
    assert run.asked == {(step, "sums"): QUESTIONS for step in STEPS[:7]}
    assert run.words("sums")[700] is VerdictWord.INCONCLUSIVE
    (ended,) = run.history.incidents(RUN)
    assert (ended.closed_step, ended.closed_by) == (700, Closing.REMEASURED)
    assert run.fakes.alerting.alerts[-1].message == "sums: measured with changed settings since step 700"
    assert list(change_lines(run.history.series_changes(RUN))) == CHANGES[:1]
    published = run.fakes.tracking.series
    assert list(published.values())[-7:] == [{"sums": 2, "facts": 1}] * 7
    before_that = Counter(event.kind for event in run.history.events(RUN))
    run.watch(SHORT, wait_s=0.0)
    assert not run.asked
    since = Counter(event.kind for event in run.history.events(RUN)) - before_that
    assert (since[EventKind.EVALUATED], since[EventKind.REUSED]) == (0, 7)
    assert {step: report.verdicts for step, report in run.reports().items()} == {
        step: report.verdicts for step, report in before.items()
    }
    assert list(change_lines(run.history.series_changes(RUN))) == CHANGES
    assert list(published.values())[-7:] == [{"sums": 1, "facts": 1}] * 7
    assert opened(run) == loss
    assert [alert.state for alert in run.fakes.alerting.alerts] == ["firing", "resolved", "firing"]
    for one in (run, other):
        one.save(800)
        one.watch(SHORT)
        assert [e.opened_step for e in opened(one)] == [600]
    assert run.reports()[800].verdicts == other.reports()[800].verdicts
    assert [alert.step for alert in run.history.open_alerts(RUN)] == [700]


def test_a_checkpoint_that_was_only_measured_otherwise_is_asked_when_the_settings_come_back(tmp_path: Path) -> None:
    run, other = run_until(tmp_path / "changed", 500), run_until(tmp_path / "same", 800)
    run.save(600, 700)
    run.watch(LONG, wait_s=1e9, seconds=60.0)
    assert {step for step, _ in run.asked} == set(STEPS[:7])
    assert run.words("sums")[700] is not VerdictWord.REGRESSED
    run.watch(SHORT, wait_s=0.0)
    assert run.asked == {(step, "sums"): QUESTIONS for step in (600, 700)}
    run.save(800)
    run.watch(SHORT)
    for step, report in other.reports().items():
        assert run.reports()[step].verdicts == report.verdicts, step
    assert [e.onset_step for e in opened(run)] == [600]


def test_an_accepted_level_belongs_to_the_settings_in_which_it_was_accepted(tmp_path: Path) -> None:
    run = run_until(tmp_path, 700)
    level = Acceptance(
        run_id=RUN, step=700, benchmark="sums", from_step=600, reason="so be it", accepted_at=run.fakes.clock.now()
    )
    accept(run.world(SHORT), level)
    run.fakes.clock.advance(1.0)
    assert opened(run) == []
    accepted = run.words("sums")
    assert accepted[700] is not VerdictWord.REGRESSED
    run.watch(LONG, wait_s=0.0)
    compared = run.reports()[700].verdicts[0].comparisons[0]
    assert 500 in compared.baseline_steps, "in the other series nothing was accepted"
    run.watch(SHORT, wait_s=0.0)
    assert run.words("sums") == accepted
    run.save(800)
    run.watch(SHORT)
    assert run.reports()[800].verdicts[0].comparisons[0].baseline_steps == (600, 700)


def test_an_acceptance_ends_no_loss_of_other_settings(tmp_path: Path) -> None:
    run = run_until(tmp_path, 700)
    run.watch(LONG, wait_s=0.0)
    level = Acceptance(
        run_id=RUN, step=700, benchmark="sums", from_step=700, reason="fine", accepted_at=run.fakes.clock.now()
    )
    accept(run.world(LONG), level)
    run.fakes.clock.advance(1.0)
    assert [e.closed_by for e in run.history.incidents(RUN)] == [Closing.REMEASURED]
    assert run.reports()[700].verdicts[0].reason == NothingEarlier(accepted_step=700)
    run.watch(SHORT, wait_s=0.0)
    assert run.words("sums")[700] is VerdictWord.REGRESSED


@pytest.mark.parametrize("again", [1, 2])
def test_going_back_and_forth_numbers_each_series_once(tmp_path: Path, again: int) -> None:
    run = run_until(tmp_path, 300)
    for _ in range(again):
        run.watch(LONG, wait_s=0.0)
        run.watch(SHORT, wait_s=0.0)
    said = list(change_lines(run.history.series_changes(RUN)))
    back_again = CHANGES[0].replace("begins", "continues")
    assert said == [*CHANGES, back_again, CHANGES[1]][: 2 * again]
    assert run.asked.total() == 2 * QUESTIONS * 3 + QUESTIONS * 3


@pytest.mark.parametrize("calls", range(2, 18, 3))
def test_a_kill_while_the_settings_come_back_leaves_no_verdict_of_the_others(tmp_path: Path, calls: int) -> None:
    run = run_until(tmp_path, 100)
    run.watch(LONG, wait_s=0.0)
    with pytest.raises(Killed):
        restore(cut(run.world(SHORT), Fuse(calls)), run.fakes.clock.now())
    run.fakes.clock.advance(1.0)
    run.watch(SHORT, wait_s=0.0)
    judged = run.history.bare_record(run.reports()[100].plan_id)
    assert judged is not None
    assert judged.plan.suite == run.suite(SHORT)
    assert list(change_lines(run.history.series_changes(RUN))) == CHANGES


GOOD = (0.9,) * 4
BROKEN = {"rivers": (*GOOD, 0.05, *GOOD), "hills": (*GOOD, 0.1, *GOOD), "lakes": (*GOOD, 0.5, *GOOD)}


class Reviewed:
    """A run whose checkpoint 500 is broken, reviewed as its results arrive; long answers are another series."""

    def __init__(self) -> None:
        self.fakes, self.minute = FakeWorld(), 0
        rng = np.random.default_rng(1)
        self.answers = {name: rng.random(80) for name in BROKEN}

    def take(self, step: int, *, is_long: bool = False, took_s: float = 1.0, **given: float) -> None:
        """Review a checkpoint; `given`: the level of each benchmark, or `level` of all."""
        scores = {}
        for name, levels in BROKEN.items():
            healthy = given.get("level", 0.9) if given else levels[step // 100 - 1]
            level_here = given.get(name, healthy)
            scores[name] = (self.answers[name] < level_here).astype(float).tolist()
        suite = suite_of(tuple(BROKEN))
        if is_long:
            suite = replace(suite, generation=replace(suite.generation, max_tokens=2 * suite.generation.max_tokens))
        self.minute += 1
        record = record_of(step, scores, suite=suite, finished_after_s=60.0 * self.minute)
        record = replace(record, started_at=record.finished_at - timedelta(seconds=took_s))
        world = replace(self.fakes.world(), policy=Policy(planned_checkpoints=20))
        review(world, record, NOW + timedelta(minutes=self.minute))

    def open_alerts(self) -> list[str]:
        return [alert.fingerprint for alert in self.fakes.history.open_alerts("run")]

    def verdicts(self) -> dict[int, list[tuple[str, VerdictWord]]]:
        newest = {report.step: report for report in self.fakes.history.reports("run")}
        return {step: [(v.benchmark, v.word) for v in (*r.verdicts, *r.findings)] for step, r in newest.items()}


def test_an_early_result_with_other_settings_changes_no_row_of_a_broken_checkpoint() -> None:
    run = Reviewed()
    for step in range(100, 800, 100):
        run.take(step)
    before, incidents = run.verdicts(), run.fakes.history.incidents("run")
    assert ("", VerdictWord.TRANSIENT) in before[600]
    run.take(100, is_long=True)
    assert {step: run.verdicts()[step] for step in range(200, 800, 100)} == {s: before[s] for s in range(200, 800, 100)}
    assert run.fakes.history.incidents("run") == incidents


def test_a_result_that_arrives_after_its_settings_were_changed_back_opens_no_loss() -> None:
    run = Reviewed()
    for step in range(100, 500, 100):
        run.take(step, level=0.9)
    for step in range(100, 400, 100):
        run.take(step, is_long=True, level=0.9)
    run.take(500, is_long=True, level=0.9)
    run.take(500, level=0.9)  # changed back
    told = len(run.fakes.alerting.alerts)
    run.take(600, is_long=True, level=0.1, took_s=100.0)
    assert run.fakes.history.incidents("run") == ()
    assert len(run.fakes.alerting.alerts) == told


@pytest.mark.parametrize(
    ("again", "ends"),
    [
        ((700,), ()),  # nothing before the loss has these settings
        ((600, 700), ()),
        ((100, 200, 300), ()),  # the newest checkpoint has not
        ((100, 200, 300, 700), (700,)),
    ],
)
def test_a_loss_ends_with_its_settings_once_others_can_show_it(again: tuple[int, ...], ends: tuple[int, ...]) -> None:
    run = Reviewed()
    for step in range(100, 800, 100):
        run.take(step, level=0.9 if step < 500 else 0.3)
    before = run.open_alerts()
    assert before
    for step in again:
        run.take(step, is_long=True, level=0.9 if step < 500 else 0.3)
    closed = [one for one in run.fakes.history.incidents("run") if one.closed_by is Closing.REMEASURED]
    assert {one.closed_step for one in closed} == set(ends)
    assert len(run.open_alerts()) == len(before), "the loss of other settings has an alert instead"
    assert (run.open_alerts() == before) == (not ends)


def test_a_loss_of_other_settings_ends_also_if_its_level_is_accepted_with_the_present_ones() -> None:
    run = Reviewed()
    for step in range(100, 800, 100):
        run.take(step, rivers=0.9 if step < 500 else 0.3)
    for step in (100, 200, 300, 700):
        run.take(step, is_long=True, rivers=0.9 if step < 500 else 0.3)
    said = [alert.message for alert in run.fakes.alerting.alerts if alert.subject.name == "rivers"]
    assert said[-2] == "rivers: measured with changed settings since step 700, still regressed"
    run.take(700, rivers=0.3)  # changed back
    level = Acceptance(run_id="run", step=700, benchmark="rivers", from_step=700, reason="meant", accepted_at=NOW)
    accept(replace(run.fakes.world(), policy=Policy(planned_checkpoints=20)), level)
    run.take(800, is_long=True, rivers=0.3)
    assert run.open_alerts()
    run.take(800, rivers=0.3)
    assert [one for one in run.fakes.history.incidents("run") if one.closed_step is None] == []
    assert run.open_alerts() == []


def test_results_that_are_asked_again_raise_no_alert_of_what_is_over() -> None:
    run = Reviewed()
    for step in range(100, 1000, 100):
        run.take(step)
    told = len(run.fakes.alerting.alerts)
    for step in range(100, 1000, 100):
        run.take(step, is_long=True)
    assert len(run.fakes.alerting.alerts) == told
    assert [one.closed_by for one in run.fakes.history.incidents("run") if one.closed_by is None] == []
