"""A trainer that falls silent and evaluations that stand still are told, once, and so is the end of it."""

from dataclasses import replace

from eval_jobs.queue_types import Hold, QueueState
from eval_jobs.types import Screen, ScreenPart
from tests.unit.tracker.app.stall_bench import (
    EVERY_S,
    FIRING,
    PLAN,
    RESOLVED,
    RUN,
    START,
    Tower,
    checkpoint,
    of_sweep,
    report,
    running,
    saved,
    seconds,
    waiting,
)
from tracker.domain.records.alerts import AlertKind, Patience
from tracker.domain.records.types import Gap


def test_a_stalled_trainer_raises_one_alert_and_its_next_checkpoint_resolves_it() -> None:
    tower = Tower()
    saved(tower, 5)
    tower.look(4 * EVERY_S + 4.0 * EVERY_S)
    assert tower.told() == []
    for second in (1, 60, 9000):
        tower.look(4 * EVERY_S + 4.0 * EVERY_S + second)
    assert tower.told() == [(AlertKind.OVERDUE, FIRING, 400)]
    assert "no checkpoint for 40.0 min" in tower.alerting.alerts[0].message
    assert "usual interval 10.0 min" in tower.alerting.alerts[0].message
    assert tower.alerting.alerts[0].command == f"tracker history {RUN}"
    late = replace(checkpoint(5), ready_at=seconds(20_000))
    tower.look(20_001, late)
    assert tower.told()[1:] == [(AlertKind.OVERDUE, RESOLVED, 400)]
    assert tower.history.open_alerts(RUN) == ()


def test_no_alert_is_raised_when_no_checkpoint_is_due() -> None:
    towers = {
        "from few checkpoints nobody can say what is usual": Tower(),
        "copied checkpoints say nothing of the trainer's pace": Tower(),
        "it ended by its own word": Tower(last_step=400),
        "its next checkpoint would come after its end": Tower(last_step=450),
        "its process has ended": Tower(),
        "switched off": Tower(patience=Patience(overdue_factor=0, stuck_after_s=0)),
        "the settings say that workers wait": Tower(),
    }
    few, copied, *saving, waits = towers.values()
    saved(few, 3)
    copied.look(10, *(checkpoint(number, every_s=0.5) for number in range(8)))
    for tower in saving:
        saved(tower, 5)
    *_, ended, switched_off = saving
    ended.look(4 * EVERY_S + 1, is_training=False)
    for at_s in (5000, 50_000, 100_000):
        for tower in (few, copied, *saving[:2]):
            tower.look(at_s)
        ended.look(at_s, is_training=False)
        switched_off.look(at_s, state=waiting(3))
    for at_s in (0, 1000, 50_000):
        waits.look(at_s, state=waiting(3, note="waits until 22:00"))
    assert {why: tower.told() for why, tower in towers.items() if tower.told()} == {}


def test_a_run_that_saves_fast_is_not_called_late_within_minutes() -> None:
    tower = Tower()
    for number in range(8):
        tower.look(20.0 * number, checkpoint(number, every_s=20.0))
    tower.look(140 + 600)
    assert tower.told() == []
    tower.look(140 + 601)
    assert tower.told() == [(AlertKind.OVERDUE, FIRING, 700)]


def test_the_end_of_the_training_ends_the_alert() -> None:
    tower = Tower()
    saved(tower, 5)
    tower.look(100_000)
    tower.look(100_001, is_training=False)
    assert tower.told() == [(AlertKind.OVERDUE, FIRING, 400), (AlertKind.OVERDUE, RESOLVED, 400)]


def test_a_run_that_reports_more_steps_is_overdue_beside_runs_that_write() -> None:
    tower = Tower(last_step=10_000)
    hung, alive = f"{RUN}/a", f"{RUN}/b"
    for number in range(5):
        tower.look(number * EVERY_S + 1, checkpoint(number, run_id=hung), checkpoint(number, run_id=alive))
    for number in range(5, 20):
        tower.look(number * EVERY_S + 1, checkpoint(number, run_id=alive))
    assert [(a.run_id, a.state) for a in tower.alerting.alerts] == [(hung, FIRING)]


def test_of_several_runs_without_a_known_end_only_the_latest_one_can_be_overdue() -> None:
    tower = Tower()
    ended, alive = f"{RUN}/a", f"{RUN}/b"
    for number in range(5):
        tower.look(number * EVERY_S + 1, checkpoint(number, run_id=ended))
    for number in range(6, 20):
        tower.look(number * EVERY_S + 1, checkpoint(number, run_id=alive))
    assert tower.told() == []
    tower.look(100 * EVERY_S)
    assert [a.run_id for a in tower.alerting.alerts] == [alive]


def test_a_checkpoint_that_cannot_be_evaluated_shows_that_training_runs() -> None:
    tower = Tower()
    saved(tower, 5)
    at = seconds(8 * EVERY_S)
    broken = Gap(run_id=RUN, step=500, source_uri="/out", code="E", message="m", hint="h", seen_at=at)
    tower.look(8 * EVERY_S, gaps=(broken,))
    tower.look(10 * EVERY_S)
    assert tower.told() == []


def test_a_stall_before_the_watcher_started_raises_no_alert() -> None:
    ended, goes_on = Tower(), Tower(last_step=10_000)
    for tower in (ended, goes_on):
        tower.look(1_000_000, *(checkpoint(number) for number in range(5)))
        tower.look(1_000_000 + 4 * EVERY_S)
        assert tower.told() == []
        tower.look(1_000_000 + 4 * EVERY_S + 1)
    assert ended.told() == []  # nobody knows that anybody trains it
    assert goes_on.told() == [(AlertKind.OVERDUE, FIRING, 400)]
    for number in range(5, 10):
        at = 1_010_000 + number * EVERY_S
        ended.look(at, replace(checkpoint(number), ready_at=seconds(at)))
    ended.look(at + 4 * EVERY_S + 1)
    assert ended.told() == [(AlertKind.OVERDUE, FIRING, 900)]  # somebody did


def test_a_finished_run_is_not_overdue_while_a_slower_one_continues() -> None:
    tower = Tower()
    ended, slow = f"{RUN}/a", f"{RUN}/b"
    for number in range(40):
        now = [checkpoint(number, run_id=ended)] if number < 39 else []
        if number % 10 == 0:
            now.append(checkpoint(number, run_id=slow))
        tower.look(number * EVERY_S, *now)
    tower.look(50 * EVERY_S - 1)
    assert tower.told() == []


def test_a_run_with_few_checkpoints_does_not_suppress_the_alert_of_another() -> None:
    tower = Tower()
    few, hung = f"{RUN}/a", f"{RUN}/b"
    for number in range(8):
        tower.look(
            number * EVERY_S, *(checkpoint(number, run_id=run) for run in (few, hung) if run == hung or number < 2)
        )
    tower.look(20 * EVERY_S)
    assert [a.run_id for a in tower.alerting.alerts] == [hung]


def test_a_clock_change_a_suspended_machine_and_a_store_outage_raise_no_alert() -> None:
    tower = Tower()
    saved(tower, 5)
    tower.look(4 * EVERY_S + 100, state=waiting(3))
    for at_s in (1_000_000, 1_000_001, 3000, 3100):
        tower.jump(at_s, state=waiting(3))
    assert tower.told() == []


def test_checkpoints_whose_folder_has_a_late_clock_are_waited_for_from_when_they_are_seen() -> None:
    tower = Tower()
    for number in range(8):
        tower.look(number * EVERY_S + 1900, checkpoint(number))
    tower.look(7 * EVERY_S + 1900 + 4 * EVERY_S)
    assert tower.told() == []


def test_an_alert_of_an_earlier_process_lasts_until_a_checkpoint_comes() -> None:
    tower = Tower()
    saved(tower, 5)
    tower.look(100_000)
    tower.start()
    tower.look(100_011, *(checkpoint(number) for number in range(5)))
    assert tower.told() == [(AlertKind.OVERDUE, FIRING, 400)]
    tower.look(100_020, replace(checkpoint(5), ready_at=seconds(100_019)))
    assert tower.told()[1:] == [(AlertKind.OVERDUE, RESOLVED, 400)]


def test_evaluations_without_a_worker_raise_an_alert_until_one_is_finished() -> None:
    tower = Tower()
    tower.look(0, state=waiting(3))
    tower.look(900, state=waiting(3))
    assert tower.told() == []
    tower.look(901, state=waiting(3))
    tower.look(5000, state=waiting(4))
    assert tower.told() == [(AlertKind.STUCK, FIRING, 300)]
    assert "3 evaluations pending, no worker active for 15.0 min" in tower.alerting.alerts[0].message
    assert tower.alerting.alerts[0].command == "tracker worker"
    tower.look(5001, state=running("p", seconds(5001)))  # begun is not done: a worker may die again and again
    tower.look(5002, state=waiting(4))
    assert len(tower.told()) == 1
    tower.look(5100, state=waiting(3), reports=(report("p"),))
    assert tower.told()[1:] == [(AlertKind.STUCK, RESOLVED, 300)]


def test_a_sweep_that_waits_for_a_worker_is_not_stuck() -> None:
    tower = Tower()
    for second in (0, 1000, 50_000):
        tower.look(second, state=of_sweep(waiting(3)))
    assert tower.told() == []


def test_a_worker_that_dies_while_it_is_paused_raises_an_alert() -> None:
    tower = Tower(pauses_until_s=2000)
    tower.look(0, state=waiting(3, note="waits until 22:00"))
    tower.look(2000 + 600 + 840, state=waiting(3, note="waits until 22:00"))
    assert tower.told() == []
    tower.look(2000 + 600 + 961, state=waiting(3, note="waits until 22:00"))
    assert tower.told() == [(AlertKind.STUCK, FIRING, 300)]


def test_a_finished_sweep_evaluation_shows_that_a_worker_is_active() -> None:
    tower = Tower()
    tower.look(0, state=waiting(3))
    tower.look(800, state=waiting(3), swept=1)  # done between two looks, so that nobody was seen at it
    tower.look(1600, state=waiting(3))
    assert tower.told() == []
    tower.look(1800, state=waiting(3))
    tower.look(1900, state=waiting(3), swept=1)
    assert [state for _, state, _ in tower.told()] == [FIRING, RESOLVED]


def test_a_hanging_evaluation_raises_one_alert_while_others_continue() -> None:
    tower = Tower()
    for number in range(3):
        tower.look(number * 1000, state=running(f"p{number}", seconds(number * 1000)))
        tower.look(number * 1000 + 60, reports=(report(f"p{number}"),))
    hung = running("hung", seconds(10_000))
    tower.look(10_000, state=hung)
    for second in range(11_000, 20_000, 600):
        tower.look(second, state=hung, reports=(report("another"),))
        tower.look(second + 300, state=hung, swept=1)
    assert [state for _, state, _ in tower.told()] == [FIRING]
    tower.look(20_000, reports=(report("hung"),))
    assert [state for _, state, _ in tower.told()] == [FIRING, RESOLVED]


def test_a_worker_busy_with_another_run_is_not_missing() -> None:
    hold = Hold(plan_id="other", worker="w", attempt=1, lease_until=seconds(1_000_000))
    tower = Tower(elsewhere=(hold,))
    tower.look(0, state=waiting(3))
    tower.look(50_000, state=waiting(3))
    assert tower.told() == []


def test_a_worker_whose_machine_disappeared_with_its_plan_raises_an_alert() -> None:
    tower = Tower(lease_s=-601.0)
    tower.look(0, state=running("p", START))
    tower.look(901, state=running("p", START))
    assert tower.told() == [(AlertKind.STUCK, FIRING, PLAN.checkpoint.step)]
    assert "no worker active" in tower.alerting.alerts[0].message


def test_what_asks_more_than_those_before_is_not_measured_by_them() -> None:
    tower = Tower()
    for number in range(3):
        tower.look(number * 1000, state=running(f"p{number}", seconds(number * 1000)))
        tower.look(number * 1000 + 60, reports=(report(f"p{number}"),))
    (own,) = running("rest", seconds(10_000)).running
    part = ScreenPart(screen=Screen(samples=10), is_rest=True)
    more = replace(own.plan, suite=replace(own.plan.suite, part=part))
    rest = QueueState(running=(replace(own, plan=more),), unfinished={RUN: 1})
    tower.look(10_000, state=rest)
    tower.look(20_000, state=rest)
    assert tower.told() == []


def test_an_evaluation_that_takes_much_longer_than_earlier_ones_raises_an_alert() -> None:
    tower = Tower()
    for number in range(3):
        begun = seconds(number * 1000)
        tower.look(number * 1000, state=running(f"p{number}", begun))
        tower.look(number * 1000 + 300, reports=(report(f"p{number}"),))
    hung = running("hung", seconds(10_000))
    tower.look(10_000, state=hung)
    tower.look(10_000 + 1500, state=hung)
    assert tower.told() == []
    tower.look(10_000 + 1501, state=hung)
    assert [kind for kind, _, _ in tower.told()] == [AlertKind.STUCK]
    assert "on w1 (sums 3/8); earlier ones took at most 5.0 min: check the log" in tower.alerting.alerts[0].message
    tower.look(20_000, reports=(report("hung"),))
    assert [state for _, state, _ in tower.told()] == [FIRING, RESOLVED]


def test_a_stuck_alert_of_an_earlier_process_is_not_raised_again() -> None:
    tower = Tower()
    tower.look(0, state=waiting(3))
    tower.look(901, state=waiting(3))
    tower.start()
    tower.look(1001, state=waiting(3))
    assert len(tower.told()) == 1
    tower.look(1002)
    assert tower.told()[1:] == [(AlertKind.STUCK, RESOLVED, 300)]


def test_an_alert_sent_but_not_recorded_by_a_killed_process_is_resolved_by_the_next_one() -> None:
    tower = Tower()
    saved(tower, 5)
    tower.look(100_000)
    (begun,) = tower.alerting.alerts
    killed = Tower()
    killed.alerting.publish([begun])  # and not `append_alert`
    killed.look(100_010, *(checkpoint(number) for number in range(5)))
    assert killed.told() == [(AlertKind.OVERDUE, FIRING, 400), (AlertKind.OVERDUE, RESOLVED, 400)]
    killed.look(100_020)
    assert len(killed.told()) == 2
