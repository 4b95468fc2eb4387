"""Checkpoints that are evaluated after their successors: losses begin and end as if all had come in order."""

from tests.unit.tracker.app.courses import Course
from tests.unit.tracker.app.test_one_story import RUN, Told, check_alerts, check_ends
from tracker.domain.records.losses import Closing


def test_a_checkpoint_between_baseline_and_onset_that_comes_late_is_the_baseline_then() -> None:
    told = Told(Course(levels={"b0": (0.9,) * 4 + (0.35,) * 2}, late=(0, 0, 3, 3, 0, 0), longer=(False,) * 6, seed=0))
    baselines = []
    for _ in told.arrivals():
        check_alerts(told)
        baselines += [one.drop.baseline_steps for one in told.open_losses() if one.drop is not None]
    assert list(dict.fromkeys(baselines)) == [(200,), (300,), (400,)]
    told_of = [(one.evidence.baseline_steps, one.is_correction) for one in told.fakes.alerting.alerts if one.evidence]
    assert told_of == [((200,), False), ((300,), True), ((400,), True)]


def test_a_loss_whose_first_checkpoint_comes_late_begins_there() -> None:
    levels = {"b0": (*(0.95,) * 6, *(0.3,) * 3), "b1": (0.9,) * 9}
    told = Told(Course(levels=levels, late=(0,) * 6 + (3, 0, 0), longer=(False,) * 9, seed=0))
    onsets = []
    for _ in told.arrivals():
        check_alerts(told)
        check_ends(told)
        onsets += [(one.onset_step, one.closed_step) for one in told.fakes.history.incidents(RUN) if one.benchmark]
    assert onsets[-1] == (700, None)
    assert {onset for onset, _ in onsets} == {800, 700}
    corrected = [alert for alert in told.fakes.alerting.alerts if alert.is_correction]
    assert [alert.evidence.onset_step for alert in corrected if alert.evidence is not None][-1] == 700
    for report in told.fakes.history.reports(RUN):
        assert {one.lost_since for one in report.verdicts} <= {None, 700}, report.step


def test_a_broken_checkpoint_that_comes_late_is_over_and_counts_in_no_baseline() -> None:
    levels = dict.fromkeys(("b0", "b1", "b2"), (*(0.9,) * 3, 0.0, *(0.9,) * 4))
    told = Told(Course(levels=levels, late=(0, 0, 0, 4, 0, 0, 0, 0), longer=(False,) * 8, seed=0))
    for _ in told.arrivals():
        check_alerts(told)
        check_ends(told)
    losses = told.fakes.history.incidents(RUN)
    assert {(one.onset_step, one.closed_step, one.closed_by) for one in losses} == {(400, 500, Closing.TRANSIENT)}
    assert "" in {one.benchmark for one in losses}
    assert not told.fakes.alerting.alerts
    for report in told.fakes.history.reports(RUN):
        for verdict in report.verdicts:
            assert report.step == 500 or all(400 not in one.baseline_steps for one in verdict.comparisons), report.step
