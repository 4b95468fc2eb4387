"""The rules of `ports.Alerting`, over the fake and the outbox in SQLite and PostgreSQL."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from eval_jobs.errors import ChannelRefused, ChannelUnreachable
from eval_jobs.queue.database_sql import open_database
from tests.alerts import RUN, alert, end_of
from tests.fakes.alerting import FakeAlerting, FakeChannel
from tests.fakes.clock import FakeClock
from tracker.adapters.alerts.outbox_sql import AlertOutbox
from tracker.domain.records.alerts import AlertMessage, AlertState, Silence, SubjectKind, alert_subject_text
from tracker.ports import Alerting

FIRING, RESOLVED = AlertState.FIRING, AlertState.RESOLVED
AWAY = ChannelUnreachable("nobody answers", hint="start it")
REFUSED = ChannelRefused("the signature is wrong", hint="look at the key")


@dataclass(kw_only=True)
class Site:
    """One adapter under test, with two channels."""

    reopen: Callable[[], Alerting]
    """Another handle on the same outbox, as a process that starts again has it; the fake has only one."""
    team: FakeChannel
    pager: FakeChannel
    clock: FakeClock

    def settle(self) -> None:
        """Let every channel send what is due."""
        self.reopen().close()

    def later(self, seconds: float = 400.0) -> None:
        self.clock.advance(seconds)
        self.settle()

    def silence(self, name: str, seconds: float, *, run_id: str = RUN, id_: str = "a") -> Silence:
        now = self.clock.now()
        ends_at = now + timedelta(seconds=seconds)
        silence = Silence(
            id=id_, run_id=run_id, kind=SubjectKind.BENCHMARK, name=name, reason="known", begins_at=now, ends_at=ends_at
        )
        self.reopen().silence(silence)
        return silence


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    clock, team, pager = FakeClock(), FakeChannel(name="team"), FakeChannel(name="pager")
    link = "https://mlflow.example/{run}?step={step}"
    if request.param == "fake":
        fake = FakeAlerting((team, pager), clock, link)
        yield Site(reopen=lambda: fake, team=team, pager=pager, clock=clock)
        return
    sqlite_url = f"sqlite:///{tmp_path}/tracker.db"
    url = sqlite_url if request.param == "sqlite" else request.getfixturevalue("postgres_url")

    with ExitStack() as opened:

        def reopen() -> Alerting:
            engine = open_database(url)
            opened.callback(engine.dispose)
            return AlertOutbox(engine, (team, pager), clock, run=RUN, link=link)

        yield Site(reopen=reopen, team=team, pager=pager, clock=clock)


def test_all_news_of_a_checkpoint_is_one_message_with_what_fires_first(site: Site) -> None:
    alerting = site.reopen()
    alerting.publish([alert("facts", 50)])
    alerting.close()
    alerting.publish([end_of("facts", 100), alert("sums", 100), alert("words", 100), alert("sums", 200)])
    alerting.publish([alert("words", 100), alert("code", 200)])
    alerting.close()
    told = [[(alert_subject_text(a.subject), a.state) for a in m.alerts] for m in site.team.messages]
    assert told == [
        [("facts", FIRING)],
        [("sums", FIRING), ("words", FIRING), ("facts", RESOLVED)],
        [("code", FIRING)],
    ]
    assert [(m.run_id, m.step, m.link) for m in site.team.messages][1] == (
        RUN,
        100,
        "https://mlflow.example/run?step=100",
    )
    assert site.pager.messages == site.team.messages
    assert alerting.flush() == 0


def test_a_repeated_alert_is_sent_once_by_this_process_or_another(site: Site) -> None:
    for _ in range(3):
        site.reopen().publish([alert("sums", 100)])
        site.settle()
    assert site.team.told() == [("sums", 100, FIRING)]


def test_a_cause_may_come_go_and_come_again(site: Site) -> None:
    alerting = site.reopen()
    for one in (alert("sums", 100), end_of("sums", 200), alert("sums", 200)):
        alerting.publish([one])
        alerting.close()
    assert [(step, state) for _, step, state in site.team.told()] == [(100, FIRING), (200, RESOLVED), (200, FIRING)]


def test_the_resolution_of_an_unsent_alert_is_not_sent(site: Site) -> None:
    site.reopen().publish([end_of("sums")])
    site.settle()
    assert site.team.messages == []


def test_an_unreachable_channel_gets_all_alerts_later_and_delays_no_other(site: Site) -> None:
    site.team.trouble = AWAY
    alerting = site.reopen()
    for one in (alert("sums", 100), alert("facts", 200), end_of("sums", 300)):
        alerting.publish([one])
        alerting.close()
    told = [("sums", 100, FIRING), ("facts", 200, FIRING), ("sums", 300, RESOLVED)]
    assert site.pager.told() == told
    states = {state.name: state for state in alerting.channels()}
    assert (states["team"].waiting, states["pager"].waiting) == (3, 0)
    assert "nobody answers" in states["team"].last_error
    assert site.team.messages == []
    site.team.trouble = None
    site.later()
    site.later()
    assert site.team.told() == told
    assert [state.waiting for state in alerting.channels()] == [0, 0]


def test_a_channel_that_is_away_is_not_asked_at_every_look(site: Site) -> None:
    site.team.trouble = AWAY
    alerting = site.reopen()
    alerting.publish([alert()])
    alerting.close()
    site.team.trouble = None
    site.settle()
    assert site.team.messages == []
    site.later(seconds=5.0)
    assert len(site.team.messages) == 1


def test_a_message_that_is_refused_does_not_stop_others_but_what_belongs_to_it(site: Site) -> None:
    alerting = site.reopen()
    site.team.trouble = REFUSED
    alerting.publish([alert("sums", 100)])
    alerting.close()
    site.team.trouble = None
    alerting.publish([end_of("sums", 200)])
    alerting.publish([alert("facts", 300)])
    alerting.close()
    assert site.team.told() == [("facts", 300, FIRING)]
    site.later()
    site.later()
    assert site.team.told()[1:] == [("sums", 100, FIRING), ("sums", 200, RESOLVED)]


def test_a_channel_that_is_away_is_asked_once_however_much_waits_and_hears_it_in_order(site: Site) -> None:
    site.team.trouble = AWAY
    alerting = site.reopen()
    alerting.publish([alert("sums", 100), alert("facts", 200), alert("words", 300)])
    for _ in range(4):
        alerting.flush()
        alerting.close()
    assert site.team.tries == 1
    alerting.publish([alert("code", 400)])
    alerting.close()
    assert site.team.tries == 1
    site.team.trouble = None
    site.clock.advance(5.0)
    alerting.close()
    assert [step for _, step, _ in site.team.told()] == [100, 200, 300, 400]


def test_the_end_of_what_was_just_refused_waits_for_its_beginning(site: Site) -> None:
    site.team.refuses = lambda message: message.step == 100
    alerting = site.reopen()
    alerting.publish([alert("sums", 100), end_of("sums", 200), alert("facts", 200)])
    alerting.close()
    assert site.team.told() == [("facts", 200, FIRING)]
    site.team.refuses = lambda _: False
    site.later()
    site.later()
    assert site.team.told()[1:] == [("sums", 100, FIRING), ("sums", 200, RESOLVED)]


def test_a_silenced_alert_that_is_still_open_is_sent_when_the_silence_ends(site: Site) -> None:
    silence = site.silence("sums", 3600)
    alerting = site.reopen()
    alerting.publish([alert("sums", 100), alert("facts", 100)])
    alerting.close()
    assert site.team.told() == [("facts", 100, FIRING)]
    assert alerting.silences() == (silence,)
    site.later(3599)
    assert len(site.team.messages) == 1
    site.later(1)
    assert site.team.told()[1:] == [("sums", 100, FIRING)]
    assert alerting.silences() == ()


def test_an_alert_that_opened_and_ended_during_a_silence_is_not_sent(site: Site) -> None:
    site.silence("*", 3600)
    alerting = site.reopen()
    alerting.publish([alert("sums", 100)])
    alerting.close()
    alerting.publish([end_of("sums", 200)])
    alerting.close()
    assert {state.is_silenced for state in alerting.channels()} == {True}
    site.later(3600)
    assert site.team.messages == []
    assert alerting.flush() == 0


def test_the_resolution_of_an_alert_sent_before_a_silence_is_sent_during_it(site: Site) -> None:
    alerting = site.reopen()
    alerting.publish([alert("sums", 100)])
    alerting.close()
    site.silence("sums", 3600)
    alerting.publish([end_of("sums", 200)])
    alerting.close()
    assert site.team.told() == [("sums", 100, FIRING), ("sums", 200, RESOLVED)]


def test_a_silence_that_is_ended_lets_everything_go_at_once(site: Site) -> None:
    site.silence("*", 3600)
    alerting = site.reopen()
    alerting.publish([alert("sums", 100)])
    alerting.close()
    site.silence("*", 0.0)  # the same id
    site.settle()
    assert site.team.told() == [("sums", 100, FIRING)]
    assert alerting.silences() == ()


def test_alerting_works_without_a_channel(site: Site) -> None:
    alerting = FakeAlerting(()) if isinstance(site.reopen(), FakeAlerting) else None
    outbox = alerting or AlertOutbox(open_database("sqlite://"), (), site.clock, run=RUN)
    outbox.publish([alert()])
    assert outbox.flush() == 0
    assert outbox.channels() == ()
    outbox.close()


def test_many_dead_channels_leave_the_watcher_its_connections_to_postgresql(postgres_url: str) -> None:
    let_go, asked = threading.Event(), threading.Semaphore(0)

    class Dead(FakeChannel):
        def notify(self, message: AlertMessage) -> str:
            asked.release()
            assert let_go.wait(60.0)
            return super().notify(message)

    engine, channels = open_database(postgres_url), [Dead(name=f"c{number}") for number in range(16)]
    outbox = AlertOutbox(engine, channels, FakeClock(), run=RUN)
    outbox.publish([alert("sums", 100)])
    try:
        outbox.flush()
        for _ in channels:
            assert asked.acquire(timeout=60.0)
        assert outbox.flush() == 16
    finally:
        let_go.set()
        outbox.close()
        engine.dispose()
    assert all(len(channel.messages) == 1 for channel in channels)


def test_a_renamed_channel_sends_pending_alerts_and_the_resolutions_of_sent_ones(site: Site) -> None:
    told, waits = alert("a"), alert("b")
    site.reopen().publish([told])
    site.settle()
    site.team.trouble = AWAY
    site.reopen().publish([waits])
    site.settle()
    assert site.reopen().give_up("pager") == 0  # it was told everything
    assert site.reopen().hand_over("team", "pager") == (told, waits)
    site.reopen().publish([end_of("a")])
    site.settle()
    assert site.pager.told()[2:] == [("b", 100, FIRING), ("a", 200, RESOLVED)]
    assert [(s.name, s.waiting) for s in site.reopen().channels()] == [("team", 0), ("pager", 0)]


def test_of_a_cause_that_it_knows_a_channel_takes_nothing_over(site: Site) -> None:
    site.reopen().publish([alert("a")])
    site.settle()
    assert site.reopen().hand_over("team", "pager") == ()
    site.reopen().publish([end_of("a")])
    site.settle()
    assert site.pager.told() == [("a", 100, FIRING), ("a", 200, RESOLVED)]


def test_pending_alerts_of_a_discarded_channel_are_never_sent(site: Site) -> None:
    site.team.trouble = AWAY
    site.reopen().publish([alert("a"), alert("b")])
    site.settle()
    assert site.reopen().give_up("team") == 2
    site.team.trouble = None
    site.later()
    assert site.team.told() == []
    assert len(site.pager.told()) == 2
