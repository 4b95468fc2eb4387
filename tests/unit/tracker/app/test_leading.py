import os
from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from eval_jobs.errors import ConfigError, StoreUnavailable
from tests.fakes.clock import FakeClock
from tests.fakes.history import FakeHistory
from tests.fakes.lead import FakeLead
from tracker.app.leading import LeadLost, WatchLog, demand_lead, stand_by
from tracker.domain.checkpoints.watching import Leader
from tracker.domain.log.events import RunEvent

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
AWAY = StoreUnavailable("the database is away", hint="wait")


class ReleasesAfter(FakeClock):
    """Another process leads for a few seconds more; in between the database may be away."""

    def __init__(self, seconds: int, leading: FakeLead, standing_by: FakeLead, away: range = range(0)) -> None:
        super().__init__()
        self._seconds = seconds
        self._leading, self._standing_by, self._away = leading, standing_by, away

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._standing_by.trouble = AWAY if len(self.slept) in self._away else None
        if len(self.slept) == self._seconds:
            self._leading.release()


def leading(folder: str = "/out") -> FakeLead:
    lead = FakeLead(folder)
    lead.take(NOW)
    return lead


def test_a_free_run_is_led_at_once() -> None:
    clock, shown = FakeClock(), list[Leader | None]()
    stand_by(FakeLead("/out"), "run", output_dir="/out", clock=clock, show=shown.append)
    assert (clock.slept, shown) == ([], [])


def test_a_stand_by_says_who_leads_until_it_leads_itself() -> None:
    first = leading()
    second, shown = first.another("/out"), list[Leader | None]()
    leader = first.leader()
    stand_by(second, "run", output_dir="/out", clock=ReleasesAfter(3, first, second), show=shown.append)
    assert leader is not None
    assert shown == [leader] * 3
    assert not first.take(NOW)


def test_a_stand_by_outlives_a_database_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    first = leading()
    second = first.another("/out")
    clock = ReleasesAfter(6, first, second, away=range(2, 5))
    shown = list[Leader | None]()
    stand_by(second, "run", output_dir="/out", clock=clock, show=shown.append)
    assert second.take(NOW)
    assert len(caplog.messages) == 1
    assert None in shown  # a stand-by that is stopped is noticed by that, also now


def test_a_database_that_is_away_at_the_start_is_an_error() -> None:
    lead = FakeLead("/out", trouble=AWAY)
    with pytest.raises(StoreUnavailable):
        stand_by(lead, "run", output_dir="/out", clock=FakeClock(), show=lambda _: None)


def test_a_run_that_is_watched_for_another_folder_is_refused() -> None:
    first = leading("/first")
    with pytest.raises(ConfigError, match=r"run sums \(/first\) is already being watched: process") as raised:
        stand_by(first.another("/second"), "sums", output_dir="/second", clock=FakeClock(), show=lambda _: None)
    assert "run.name" in raised.value.hint


def test_a_run_that_was_watched_for_another_folder_is_led_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    first = leading("/first")
    first.release()
    stand_by(first.another("/second"), "sums", output_dir="/second", clock=FakeClock(), show=lambda _: None)
    assert "/first" in caplog.text


def test_only_the_leader_may_go_on() -> None:
    first = leading()
    demand_lead(first, NOW)
    with pytest.raises(LeadLost):
        demand_lead(first.another("/out"), NOW)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "finished"),
        (KeyboardInterrupt(), "interrupted"),
        (AWAY, "E-STORE-AWAY: the database is away"),
    ],
)
def test_the_log_says_who_leads_and_why_it_ended(error: BaseException | None, said: str) -> None:
    history = FakeHistory()
    log = WatchLog(history, "run", FakeClock(NOW))
    log.end(error)
    assert history.events() == (), "a standby has nothing to say"
    history.log(log.opening())
    log.settings_changed([{"subject": "suite.max_tokens", "before": "8", "after": "16"}, {"subject": "suite.seed"}])
    history.log(log.opening())
    log.end(error)
    events = history.events("run")
    assert [event.kind for event in events] == ["started", "setting", "setting", "stopped"]
    assert events[0].reason.startswith(f"process {os.getpid()} on ")
    assert said in events[-1].reason


def test_a_database_that_is_away_does_not_hold_up_the_end() -> None:
    class Away(FakeHistory):
        def log(self, events: Iterable[RunEvent]) -> None:
            raise StoreUnavailable(f"{events} cannot be stored", hint="wait")

    log = WatchLog(Away(), "run", FakeClock(NOW))
    assert [event.kind for event in log.opening()] == ["started"]
    log.end(None)
