"""The rules of `ports.EventLog`, over the fake, SQLite and PostgreSQL: alone, and with what is stored."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eval_jobs.queue.database_sql import open_database, transaction
from tests import alerts
from tests.contract.conftest import ReopenHistory
from tests.records import RUN, forgetting_run
from tracker.adapters.history.log_sql import add_events
from tracker.adapters.history.store_sql import SqlHistory
from tracker.domain.log.events import EventKind, RunEvent, evaluation_event, run_event
from tracker.domain.records.alerts import AlertState
from tracker.domain.records.losses import Acceptance
from tracker.ports import History

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RECORDED = forgetting_run(checkpoints=4, samples=6)


@pytest.fixture
def history(reopen_history: ReopenHistory) -> History:
    return reopen_history()


def event(name: str, run: str = RUN, step: int | None = None) -> RunEvent:
    return run_event(EventKind.SETTING, (run, step, NOW), name, subject=name, before="8", after="16 \u2192 \ud800")


def subjects(found: tuple[RunEvent, ...]) -> list[str]:
    return [one.subject for one in found]


def kinds(history: History) -> list[str]:
    return [one.kind for one in history.events()]


def test_what_was_added_is_read_in_its_order_with_numbers_that_grow(reopen_history: ReopenHistory) -> None:
    added = [event("first"), replace(event("second", step=600), kind=EventKind.CHANGED), event("third")]
    reopen_history().log(added[:1])
    reopen_history().log(iter(added[1:]))
    reopen_history().log(())
    found = reopen_history().events()
    assert [replace(one, number=0) for one in found] == added
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0


def test_an_event_that_is_added_twice_is_stored_once_as_it_was(reopen_history: ReopenHistory) -> None:
    first = event("first")
    reopen_history().log([first])
    reopen_history().log([replace(first, at=NOW + timedelta(hours=1), after="other"), event("second")])
    assert [(one.subject, one.at) for one in reopen_history().events()] == [("first", NOW), ("second", NOW)]


def test_what_is_new_since_a_number_and_the_newest_are_one_question(history: History) -> None:
    history.log([event(name) for name in "abcd"])
    second = history.events()[1].number
    assert subjects(history.events(after=second)) == ["c", "d"]
    assert subjects(history.events(last=3)) == ["b", "c", "d"]
    assert subjects(history.events(after=second, last=1)) == ["d"]
    assert history.events(after=history.events()[-1].number) == ()
    history.log([event("a"), event("e")])
    assert subjects(history.events(after=second, last=2)) == ["d", "e"]


def test_a_sub_folder_has_the_events_of_its_run_and_a_run_those_of_its_sub_folders(history: History) -> None:
    history.log([event("of a", "a"), event("of a/x", "a/x"), event("of a/y", "a/y"), event("of ab", "ab")])
    assert subjects(history.events("a")) == ["of a", "of a/x", "of a/y"]
    assert subjects(history.events("a/x")) == ["of a", "of a/x"]
    assert history.events("b") == ()


def test_a_gap_and_an_acceptance_are_logged_with_themselves_once(reopen_history: ReopenHistory) -> None:
    acceptance = Acceptance(
        run_id=RUN, step=800, benchmark="sums", from_step=700, reason="the data changed", accepted_at=NOW
    )
    for _ in range(2):
        reopen_history().append_gap(RECORDED.gaps[0])
        reopen_history().append_acceptance(acceptance)
    gap, accepted = reopen_history().events()
    assert (gap.kind, gap.step, gap.reason) == (EventKind.GAP, RECORDED.gaps[0].step, RECORDED.gaps[0].code)
    assert (accepted.kind, accepted.step, accepted.subject) == (EventKind.ACCEPTED, 800, "sums")
    reopen_history().append_acceptance(replace(acceptance, accepted_at=NOW + timedelta(hours=1)))
    assert kinds(reopen_history()) == ["gap", "accepted", "accepted"]


def test_an_alert_is_logged_when_it_begins_says_something_else_and_ends(reopen_history: ReopenHistory) -> None:
    firing = alerts.alert(step=700, state=AlertState.FIRING, run_id=RUN)
    corrected = replace(firing, message="facts suspect at step 700")
    over = replace(firing, state=AlertState.RESOLVED, message="facts recovered at step 900", step=900)
    for one in (over, firing, replace(firing, raised_at=NOW), corrected, corrected, over, over, firing):
        reopen_history().append_alert(one)
    found = reopen_history().events()
    assert [(one.kind, one.step) for one in found] == [
        ("alert", 700), ("corrected", 700), ("resolved", 900),
    ], "the same alert at the same time is the same event"  # fmt: skip
    assert (found[1].before, found[1].after) == (firing.message, corrected.message)
    reopen_history().append_alert(over)
    reopen_history().append_alert(replace(firing, raised_at=NOW, step=1000))
    assert kinds(reopen_history())[3:] == ["alert"]


def test_a_report_is_stored_with_its_events_or_not_at_all(reopen_history: ReopenHistory) -> None:
    record, report = RECORDED.records[0], RECORDED.reports[0]
    for _ in range(2):
        reopen_history().append_reports(report, events=[evaluation_event(record, report)])
    assert kinds(reopen_history()) == ["evaluated"]

    def broken() -> Iterator[RunEvent]:
        yield event("one")
        raise ZeroDivisionError

    if isinstance(reopen_history(), SqlHistory):
        with pytest.raises(ZeroDivisionError):
            reopen_history().append_reports(RECORDED.reports[1], events=broken())
        assert reopen_history().report(RECORDED.reports[1].plan_id) is None
        assert kinds(reopen_history()) == ["evaluated"]


def test_no_number_becomes_visible_after_a_higher_one(postgres_url: str, tmp_path: Path) -> None:
    engines = [open_database(postgres_url) for _ in range(2)]
    first, second = (SqlHistory(engine, tmp_path) for engine in engines)
    with transaction(engines[0]) as connection:
        add_events(connection, [event("slow")])
        other = threading.Thread(target=second.log, args=([event("quick")],))
        other.start()
        other.join(0.5)
        assert other.is_alive(), "it waits for the first, whose number is lower"
        assert second.events() == ()
    other.join(30)
    assert subjects(first.events()) == ["slow", "quick"]
    for engine in engines:
        engine.dispose()
