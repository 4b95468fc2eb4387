"""What the agent has read becomes alerts, once each, and curves."""

from datetime import timedelta

import pytest

from tests.fakes.alerting import FakeAlerting
from tests.fakes.clock import FakeClock
from tests.fakes.history import FakeHistory
from tests.fakes.tracking import FakeTracking
from tests.fakes.training_log import FakeTrainingLog
from tracker.app.health.follow import LogFollower, Reading
from tracker.app.health.notices import POINTS_S, TrainingMonitor
from tracker.app.news import StoreNews
from tracker.app.steps.alerting import AlertDispatcher
from tracker.config.health import load_rules
from tracker.domain.alerts.training import RunStanding
from tracker.domain.health.stored import ReadSoFar

OOM = "torch.OutOfMemoryError: CUDA out of memory.\n"
DIED = "Killing subprocess 77\n"


class Watched:
    """A trainer, its agent, and the watcher that reports."""

    def __init__(self) -> None:
        self.clock, self.history, self.tracking = FakeClock(), FakeHistory(), FakeTracking()
        self.alerting = FakeAlerting()
        self.logs = {"train.log": b""}
        log = FakeTrainingLog(self.logs, self.clock, {}, is_first=False)
        self.agent = LogFollower(
            log=log, store=self.history, reading=Reading(rules=load_rules().lines), clock=self.clock, known=ReadSoFar()
        )
        self.start()

    def start(self) -> None:
        dispatcher = AlertDispatcher(alerts=self.history, records=self.history, alerting=self.alerting)
        self.news = StoreNews(run="run", history=self.history)
        self.monitor = TrainingMonitor(
            run="run",
            history=self.history,
            tracking=self.tracking,
            dispatcher=dispatcher,
            standing=lambda _: RunStanding(checkpoint=10),
        )

    def write(self, *lines: str) -> None:
        self.logs["train.log"] += "".join(lines).encode()

    def look(self, *, after_s: float = 1.0) -> list[tuple[str, str]]:
        """Return kind and state of the alerts of one pass."""
        self.clock.advance(after_s)
        self.agent.follow()
        before = len(self.alerting.alerts)
        self.monitor.note(self.news.take(self.clock.now()))
        self.monitor.look(self.clock.now())
        return [(alert.kind, alert.state) for alert in self.alerting.alerts[before:]]


@pytest.fixture
def watched() -> Watched:
    found = Watched()
    assert found.look() == []
    return found


def test_an_incident_that_began_and_ended_between_two_looks_is_an_alert_and_its_end(watched: Watched) -> None:
    watched.write("step 20 | loss: 2.5\n", OOM, *(f"step {step} | loss: 2.5\n" for step in (30, 40, 50)))
    assert watched.look() == [("crash", "firing"), ("crash", "resolved")]
    watched.start()
    assert watched.look() == []
    watched.write(DIED, *(f"step {step} | loss: 2.5\n" for step in (60, 70, 80)))  # a consequence may be survived
    assert watched.look() == []


def test_an_incident_is_one_alert_and_its_end_another(watched: Watched) -> None:
    watched.write("step 20 | loss: 2.5\n", OOM)
    assert watched.look() == [("crash", "firing")]
    watched.write(DIED, OOM)
    assert watched.look() == []
    watched.start()
    assert watched.look() == []
    watched.write(*(f"step {step} | loss: 2.5\n" for step in (30, 40, 50)))
    assert watched.look() == [("crash", "resolved")]
    assert watched.look() == []


def test_what_training_may_survive_waits_and_its_cause_replaces_it(watched: Watched) -> None:
    watched.write(DIED)
    assert watched.look() == []
    assert watched.look(after_s=20) == [("crash", "firing")]
    watched.write("step 1 | loss: 1\n", "step 2 | loss: 1\n", "step 3 | loss: 1\n", DIED)
    assert watched.look() == [("crash", "resolved")]
    watched.write(OOM)  # the cause, two seconds later
    assert watched.look() == [("crash", "firing")]
    assert [alert.subject.name for alert in watched.history.open_alerts("run")] == ["oom"]
    assert watched.look(after_s=60) == []


def test_when_the_training_has_ended_nothing_waits(watched: Watched) -> None:
    watched.write("ValueError: no\n")
    assert watched.look() == []
    watched.monitor.look(watched.clock.now(), has_ended=True)
    assert [(alert.kind, alert.subject.name) for alert in watched.alerting.alerts] == [("crash", "python_error")]


def test_an_incident_that_is_over_before_its_wait_raises_none(watched: Watched) -> None:
    watched.write("ValueError: caught\n", *(f"step {step} | loss: 1\n" for step in (1, 2, 3)))
    assert watched.look() == []
    assert watched.look(after_s=60) == []


def test_a_dismissed_incident_is_resolved_and_stays_so(watched: Watched) -> None:
    watched.write(OOM)
    assert watched.look() == [("crash", "firing")]
    (one,) = watched.history.training_incidents("run")
    watched.history.dismiss(one.id, "known")
    assert watched.look() == [("crash", "resolved")]
    watched.write(OOM)
    assert watched.look() == []


def test_points_and_incidents_reach_the_tracking_store_once(watched: Watched) -> None:
    watched.write("step 20 | loss: 2.5\n", OOM)
    for _ in range(3):
        watched.look(after_s=(POINTS_S + timedelta(seconds=1)).total_seconds())
    watched.start()
    watched.look(after_s=10)
    assert watched.tracking.flush() == 0
    assert [(point.step, point.value) for point in watched.tracking.points] == [(20, 2.5)]
    assert watched.tracking.incidents == [("GPU memory ran out at step 20 (lasts)",)]
