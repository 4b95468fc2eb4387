"""The outbox of alerts where the contract does not look: threads, kills, other processes, services that forget."""

import logging
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from eval_jobs.errors import ChannelUnreachable
from eval_jobs.queue.database_sql import open_database
from tests.alerts import RUN, alert, end_of
from tests.fakes.alerting import FakeChannel
from tests.fakes.clock import FakeClock
from tracker.adapters.alerts.outbox_sql import AlertOutbox
from tracker.adapters.alerts.sender_sql import ChannelSender
from tracker.adapters.database.lock_sql import named_lock
from tracker.adapters.database.tables import DELIVERIES
from tracker.domain.records.alerts import AlertMessage, Silence, SubjectKind, alert_subject_text

PATIENCE_S = 60.0


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_database(f"sqlite:///{tmp_path}/tracker.db")


@dataclass(kw_only=True)
class StuckChannel(FakeChannel):
    """Answers nothing until it is let go."""

    asked: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def notify(self, message: AlertMessage) -> str:
        self.asked.set()
        assert self.let_go.wait(PATIENCE_S)
        return super().notify(message)


class Killed(BaseException):
    """The process ends here."""


@dataclass(kw_only=True)
class FatalChannel(FakeChannel):
    """Takes the message, and the process is killed before it hears so."""

    def notify(self, message: AlertMessage) -> str:
        super().notify(message)
        raise Killed


def test_a_dead_channel_delays_neither_the_watcher_nor_another_channel(engine: Engine) -> None:
    dead, alive = StuckChannel(name="dead"), FakeChannel(name="alive")
    outbox = AlertOutbox(engine, (dead, alive), FakeClock(), run=RUN)
    outbox.publish([alert("sums", 100)])
    assert outbox.flush() == 2  # returns while the dead one keeps its thread
    assert dead.asked.wait(PATIENCE_S)
    outbox._senders["alive"].join(PATIENCE_S)
    outbox.publish([alert("facts", 200)])
    assert outbox.flush() > 0
    outbox._senders["alive"].join(PATIENCE_S)
    assert alive.told() == [
        (alert_subject_text(a.subject), a.step, a.state) for a in (alert("sums", 100), alert("facts", 200))
    ]
    assert dead.messages == []
    dead.let_go.set()
    outbox.close()
    assert dead.told() == alive.told()


def test_a_kill_between_sending_and_recording_sends_the_alert_again(engine: Engine) -> None:
    clock, fatal = FakeClock(), FatalChannel(name="team")
    AlertOutbox(engine, (fatal,), clock, run=RUN).publish([alert()])
    with pytest.raises(Killed):
        ChannelSender(engine, fatal, clock, run=RUN, link="").send_due()
    after = FakeChannel(name="team")
    AlertOutbox(engine, (after,), clock, run=RUN).close()
    assert after.told() == fatal.told() != []


def test_while_another_process_sends_nothing_is_sent_twice(engine: Engine) -> None:
    clock, channel = FakeClock(), FakeChannel(name="team")
    outbox = AlertOutbox(engine, (channel,), clock, run=RUN)
    outbox.publish([alert()])
    other = named_lock(engine, f"alerts {RUN} team")
    assert other.take()
    outbox.close()
    assert channel.messages == []
    other.release()
    outbox.close()
    assert len(channel.messages) == 1


def test_a_process_sends_alerts_of_its_own_run_only(engine: Engine) -> None:
    clock, mine, theirs = FakeClock(), FakeChannel(name="team"), FakeChannel(name="team")
    own = AlertOutbox(engine, (mine,), clock, run=RUN)
    other = AlertOutbox(engine, (theirs,), clock, run="other")
    own.publish([alert(), alert(run_id=f"{RUN}/a")])
    other.publish([alert(run_id="other")])
    own.close()
    assert [m.run_id for m in mine.messages] == [RUN, f"{RUN}/a"]
    assert theirs.messages == []
    other.close()
    assert [m.run_id for m in theirs.messages] == ["other"]


def test_a_service_that_forgets_hears_again_what_lasts(engine: Engine) -> None:
    clock, channel = FakeClock(), FakeChannel(name="alertmanager", repeat_s=60.0)
    outbox = AlertOutbox(engine, (channel,), clock, run=RUN)
    outbox.publish([alert("sums", 100), alert("facts", 100)])
    outbox.close()
    clock.advance(61)
    outbox.publish([end_of("facts", 200)])
    outbox.close()
    clock.advance(59)
    outbox.close()
    clock.advance(2)
    outbox.close()
    told = [[alert_subject_text(a.subject) for a in m.alerts] for m in channel.messages]
    first = [["sums", "facts"], ["sums", "facts"]]  # the news, and at once what lasts
    assert told == [*first, ["facts"], ["sums"], ["sums"]]


def test_a_channel_failure_is_logged_and_retried(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    clock, channel = FakeClock(), FakeChannel(name="team")
    channel.trouble = KeyError("chat_id")
    outbox = AlertOutbox(engine, (channel,), clock, run=RUN)
    outbox.publish([alert()])
    with caplog.at_level(logging.WARNING):
        outbox.close()
    assert "channel team failed, retrying in" in caplog.text
    assert "team pending, to be sent by the watcher or at the next start: KeyError: 'chat_id'" in caplog.text
    channel.trouble = None
    clock.advance(5)
    outbox.close()
    assert len(channel.messages) == 1


def test_alerts_for_a_removed_channel_are_kept_and_listed(engine: Engine) -> None:
    clock, old = FakeClock(), FakeChannel(name="old")
    old.trouble = ChannelUnreachable("nobody answers", hint="start it")
    AlertOutbox(engine, (old,), clock, run=RUN).publish([alert()])
    renamed = AlertOutbox(engine, (FakeChannel(name="new"),), clock, run=RUN)
    renamed.publish([alert()])
    renamed.close()
    assert [(s.name, s.is_configured, s.waiting) for s in renamed.channels()] == [("new", True, 0), ("old", False, 1)]


def test_an_unreadable_alert_is_logged_once_and_does_not_block_others(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    clock, channel = FakeClock(), FakeChannel(name="team")
    outbox = AlertOutbox(engine, (channel,), clock, run=RUN)
    outbox.publish([alert("sums", 100)])
    with engine.begin() as connection:
        connection.execute(update(DELIVERIES).values(alert="{"))
    outbox.publish([alert("facts", 200)])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            outbox.close()
    assert [subject for subject, _, _ in channel.told()] == ["facts"]
    assert caplog.text.count("a stored alert is damaged and is left out") == 1


def test_a_bug_in_a_sender_thread_is_logged_once_and_stops_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    class BrokenClock(FakeClock):
        def now(self) -> datetime:
            raise MemoryError("no more of it")

    channel = FakeChannel(name="team")
    AlertOutbox(engine, (channel,), FakeClock(), run=RUN).publish([alert()])
    line = ChannelSender(engine, channel, BrokenClock(), run=RUN, link="")
    for _ in range(3):
        line.start(FakeClock().now(), 0.0)
        line.join(PATIENCE_S)
    assert caplog.text.count("MemoryError: no more of it (retrying); please report this bug") == 1
    AlertOutbox(engine, (channel,), FakeClock(), run=RUN).close()
    assert len(channel.messages) == 1  # the lock was given back


def test_a_silenced_alert_is_not_logged_as_pending(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    clock, channel = FakeClock(), FakeChannel(name="team")
    outbox, now = AlertOutbox(engine, (channel,), clock, run=RUN), clock.now()
    outbox.silence(
        Silence(
            id="a", run_id=RUN, kind=SubjectKind.BENCHMARK, reason="r", begins_at=now, ends_at=now + timedelta(hours=1)
        )
    )
    outbox.publish([alert("sums", 100), end_of("sums", 200)])
    with caplog.at_level(logging.WARNING):
        outbox.close()
        outbox.close()
    assert caplog.text == ""
    assert [(s.waiting, s.is_silenced) for s in outbox.channels()] == [(2, True)]
