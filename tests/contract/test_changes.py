"""The rules of `ports.Changes`, over the fake, SQLite and PostgreSQL; what the queue notes."""

from datetime import timedelta

from eval_jobs.queue.changes_sql import changes_since, note_run, position_now
from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.records.changes import ChangeKind
from tests import alerts
from tests.contract.conftest import ReopenHistory
from tests.contract.test_history import INCIDENT, NOW, RECORDED, RECORDS
from tests.records import RUN
from tests.tables import open_all
from tracker.domain.records.types import Gap

GAP = Gap(run_id=RUN, step=300, source_uri="/out", code="E-CKPT-VANISHED", message="gone", hint="again", seen_at=NOW)


def test_what_changed_since_a_position_is_returned_and_nothing_else(reopen_history: ReopenHistory) -> None:
    history = reopen_history()
    history.append(RECORDS[1])
    begun = history.position()
    assert history.changes(begun) == (begun, ())
    history.append(RECORDS[0])
    history.append_incident(INCIDENT)
    history.append_gap(GAP)
    history.append_gap(GAP)  # known
    history.append_alert(alerts.alert(step=100, run_id=RUN))
    position, changes = history.changes(begun)
    kinds = [ChangeKind.EVALUATION, ChangeKind.LOSS, ChangeKind.GAP, ChangeKind.ALERT]
    assert [change.kind for change in changes] == kinds
    assert {change.run_id for change in changes} == {RUN}
    assert changes[0].key == RECORDS[0].plan.id
    assert history.changes(position) == (position, ())
    history.append_reports(RECORDED.reports[0])
    _, (again,) = history.changes(position)
    assert again == changes[0]


def test_a_transaction_that_becomes_visible_after_a_later_one_is_not_missed(postgres_url: str) -> None:
    open_all(postgres_url)
    engine = open_database(postgres_url)
    begun = position_now(engine)
    with transaction(engine) as slow:
        note_run(slow, ChangeKind.CURVES, "slow")
        with transaction(engine) as fast:
            note_run(fast, ChangeKind.CURVES, "fast")
        position, changes = changes_since(engine, begun)
        assert [change.run_id for change in changes] == ["fast"]
    position, changes = changes_since(engine, position)
    assert [change.run_id for change in changes] == ["slow"]
    assert changes_since(engine, position) == (position, ())
    engine.dispose()


def test_each_change_of_a_plan_is_one_change(postgres_url: str) -> None:
    open_all(postgres_url)
    engine = open_database(postgres_url)
    queue, plan = SqlQueue(engine), RECORDS[0].plan
    position, counts = position_now(engine), list[int]()

    def noted() -> None:
        nonlocal position
        position, changes = changes_since(engine, position)
        assert {(change.kind, change.key, change.run_id) for change in changes} <= {(ChangeKind.PLAN, plan.id, RUN)}
        counts.append(len(changes))

    queue.add(plan, now=NOW)
    noted()
    assert queue.claim(worker="w", now=NOW, lease_until=NOW + timedelta(seconds=9)) is not None
    noted()
    claim = queue.claim(worker="w", now=NOW + timedelta(seconds=10), lease_until=NOW + timedelta(seconds=99))
    assert claim is not None  # the first lease has expired
    noted()
    queue.extend(claim, lease_until=NOW + timedelta(seconds=199), answered=3)
    noted()
    queue.finish(claim, RECORDS[0], now=NOW)
    noted()
    queue.acknowledge(plan.id)
    noted()
    queue.acknowledge(plan.id)  # nothing changes
    noted()
    assert counts == [1, 1, 1, 1, 1, 1, 0]
    engine.dispose()
