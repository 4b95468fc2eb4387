"""The rules of `ports.Tracking`, over the fake, the outbox (SQLite, PostgreSQL) and the outbox before a real MLflow."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import BenchmarkFailure, Cost, EvalRecord, EvalResult, SampleStatus, Screen
from tests.fakes.clock import FakeClock
from tests.fakes.tracking import FakeSink, FakeTracking
from tests.mlflow_stores import MlflowFiles, locked
from tests.records import forgetting_run
from tracker.adapters.database.lock_sql import lock_if_free
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.domain.overview.costs import with_cost_so_far
from tracker.domain.records.tracking import (
    Champion,
    ChampionBatch,
    CurveBatch,
    FactsBatch,
    IncidentsBatch,
    LiveCurveBatch,
    TrackedMetric,
    TrackingItem,
    TrainerFacts,
    run_of,
)
from tracker.domain.records.types import CurvePoint, VerdictWord
from tracker.domain.tracking.batch import tracking_batch
from tracker.domain.verdicts.screening import joined
from tracker.ports import Tracking, TrackingSink

RUN = forgetting_run(checkpoints=3, samples=6, trouble=False)
LOSS = RUN.curves

Row = tuple[str, int, float]
"""Key, step, value."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """One adapter under test and what lies behind it."""

    open: Callable[[], Tracking]
    """Another handle on the same outbox, as a process that starts again has it."""
    rows: Callable[[], list[Row]]
    """Everything that arrived, sorted; a row that arrived twice is there twice."""
    down: Callable[[], AbstractContextManager[None]]
    """The store behind does not answer while the context is open."""


@pytest.fixture(params=["fake", "sqlite", "postgresql", "mlflow"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "fake":
        yield _fake()
        return
    sqlite_url = f"sqlite:///{tmp_path}/tracker.db"
    with ExitStack() as opened:
        if request.param == "mlflow":
            yield _outbox(sqlite_url, _mlflow(MlflowFiles(tmp_path)), opened)
        else:
            url = sqlite_url if request.param == "sqlite" else request.getfixturevalue("postgres_url")
            yield _outbox(url, _fake_sink(), opened)


def test_a_record_arrives_with_the_next_flush(store: Store) -> None:
    tracking = store.open()
    tracking.publish(RUN.records[0], RUN.reports[0])
    assert store.rows() == []
    assert tracking.flush() == 0
    assert store.rows() == [row for row in expected(0) if row[0] != "train/loss"]


def test_publishing_and_flushing_again_changes_nothing(store: Store) -> None:
    tracking = store.open()
    for _ in range(2):
        publish(tracking, 0, 1)
        assert tracking.flush() == 0
        assert tracking.flush() == 0
    assert store.rows() == expected(0, 1)


def test_a_newer_record_of_the_same_plan_adds_what_is_new(store: Store) -> None:
    repaired, report = RUN.records[0], RUN.reports[0]
    broken = with_failure(repaired, "facts")
    missing = next(m for m in tracking_batch(repaired, report).metrics if m.key == "bench/facts")
    tracking = store.open()
    tracking.publish(broken, report)
    tracking.flush()
    assert ("coverage/facts", missing.step, 0.0) in store.rows()
    assert "bench/facts" not in {key for key, _, _ in store.rows()}
    for handle in (tracking, store.open()):
        handle.publish(repaired, report)
        assert handle.flush() == 0
    expected_rows = {(m.key, m.step, m.value) for m in tracking_batch(repaired, report).metrics}
    assert store.rows() == sorted(expected_rows | {("coverage/facts", missing.step, 0.0)})


def test_other_words_on_the_same_record_are_published_too_and_double_no_row(store: Store) -> None:
    record, report = RUN.records[1], RUN.reports[1]
    changed = replace(report, verdicts=tuple(replace(v, word=VerdictWord.REGRESSED) for v in report.verdicts))
    tracking = store.open()
    for said in (report, changed, changed):
        tracking.publish(record, replace(said, created_at=said.created_at + timedelta(seconds=1)))
    assert tracking.flush() == 0
    assert store.rows() == sorted((m.key, m.step, m.value) for m in tracking_batch(record, report).metrics)


def test_a_benchmark_that_is_measured_anew_with_other_settings_is_published_too(store: Store) -> None:
    """Another plan of the same checkpoint, with the same names: other values of some metrics, equal ones of others."""
    first, report = RUN.records[1], RUN.reports[1]
    results = [o for o in first.outcomes if isinstance(o, EvalResult)]
    right = tuple(replace(s, score=1.0) if s.score is not None else s for s in results[0].samples)
    changed = [replace(r, fingerprint=f"{r.fingerprint[:-4]}beef") for r in results]
    again = replace(
        first,
        plan=replace(first.plan, id="f" * 32),
        outcomes=(replace(changed[0], samples=right), *changed[1:]),
        finished_at=first.finished_at + timedelta(hours=1),
    )
    tracking = store.open()
    tracking.publish(first, report)
    assert tracking.flush() == 0
    tracking.publish(again, replace(report, plan_id=again.plan.id), (), {results[0].benchmark: 2})
    assert tracking.flush() == 0
    tracking.publish(replace(first, finished_at=again.finished_at + timedelta(hours=1)), report)  # they come back
    assert tracking.flush() == 0
    key = f"bench/{results[0].benchmark}"
    for name, record in ((key, first), (f"{key}.series2", again)):
        (mean,) = {m.value for m in tracking_batch(record, report).metrics if m.key == key}
        assert [value for own, _, value in store.rows() if own == name] == [mean], "one line for each series"


def test_aliases_are_queued_where_they_move_and_where_their_checkpoint_was_published(store: Store) -> None:
    tracking = store.open()
    tracking.publish(RUN.records[0], RUN.reports[0])
    tracking.flush()
    for index in (1, 0, 0):  # nothing of the second one was ever published
        tracking.publish_champions(RUN.records[1].plan.checkpoint, [champion(index)])
    with store.down():
        assert tracking.flush() == 1
    store.open().publish(RUN.records[1], RUN.reports[1])
    store.open().publish_champions(RUN.records[1].plan.checkpoint, [champion(1)])
    store.open().publish_champions(RUN.records[1].plan.checkpoint, [champion(0)])
    with store.down():
        assert store.open().flush() == 4


def champion(index: int) -> Champion:
    plan = RUN.records[index].plan
    return Champion(alias="champion", checkpoint=plan.checkpoint, plan_id=plan.id, reason="the best block")


def test_a_screen_and_its_rest_are_one_point_of_each_curve(store: Store) -> None:
    """The coverage of the merged result and the sum of both costs; the screen's own have names of their own."""
    whole = RUN.records[1]
    plan = screen_plan(whole.plan, Screen(samples=2))
    results = [o for o in whole.outcomes if isinstance(o, EvalResult)]
    unasked = replace(results[0].samples[0], status=SampleStatus.ERROR, score=None)
    asked = tuple(replace(r, samples=(unasked, *r.samples[1:2]), left_out=4) for r in results)
    first = replace(whole, plan=plan, outcomes=asked, cost=Cost(loading_s=1, evaluating_s=2, probing_s=4))
    rest = replace(
        whole,
        plan=rest_plan(plan, ("sums",)),
        outcomes=tuple(replace(r, samples=r.samples[2:], left_out=2) for r in results if r.benchmark == "sums"),
        probes=(),
        cost=Cost(loading_s=8, evaluating_s=16, probing_s=0),
        finished_at=whole.finished_at + timedelta(minutes=1),
    )
    both = joined(first, rest)
    tracking = store.open()
    for record in (first, with_cost_so_far(both, (first, both))):
        tracking.publish(record, replace(RUN.reports[1], plan_id=record.plan.id))
        assert tracking.flush() == 0
    rows = store.rows()
    assert [key for key, times in Counter(key for key, _, _ in rows).items() if times > 1] == []
    values = {key: value for key, _, value in rows}
    assert values["screen_coverage/sums"] == values["screen_coverage/facts"] == 0.5
    assert values["coverage/sums"] == pytest.approx(5 / 6)
    assert "coverage/facts" not in values
    assert (values["screen_cost/wall_s"], values["cost/wall_s"], values["cost/evaluating_s"]) == (7, 31, 18)


def test_another_process_changes_nothing_either(store: Store) -> None:
    for _ in range(2):
        tracking = store.open()
        publish(tracking, 0)
        assert tracking.flush() == 0
    assert store.rows() == expected(0)


def test_curves_that_are_read_again_are_queued_once(store: Store) -> None:
    tracking = store.open()
    publish(tracking, 0)
    publish(tracking, 1)  # the log grows: it holds the first checkpoint's points too
    tracking.flush()
    publish(store.open(), 0)  # a restart reads the older log again
    assert store.open().flush() == 0
    assert store.rows() == expected(0, 1)


def test_checkpoints_may_arrive_out_of_order(store: Store) -> None:
    tracking = store.open()
    for index in (2, 0, 1):
        publish(tracking, index)
        tracking.flush()
    assert store.rows() == expected(0, 1, 2)


def test_facts_of_the_training_are_queued_once_and_empty_ones_never(store: Store) -> None:
    facts = TrainerFacts(name="sft", params={"seed": "1"}, tags={})
    for known, waiting in ((TrainerFacts(), 0), (facts, 1), (facts, 1), (replace(facts, params={"seed": "2"}), 2)):
        with store.down():
            tracking = store.open()
            for index in (0, 1):
                tracking.publish_facts(RUN.records[index].plan.checkpoint, known)
            assert tracking.flush() == waiting
    assert store.open().flush() == 0
    assert store.rows() == []


def test_a_rewound_run_brings_its_new_points(store: Store) -> None:
    tracking = store.open()
    publish(tracking, 2)
    again = CurvePoint(key="train/loss", step=150, value=9.5)
    tracking.publish_curves(RUN.records[1].plan.checkpoint, [*LOSS[:14], again])
    tracking.flush()
    assert store.rows() == sorted([*expected(2), ("train/loss", 150, 9.5)])


def test_a_point_that_comes_twice_in_one_call_arrives_once(store: Store) -> None:
    tracking = store.open()
    tracking.publish_curves(RUN.records[0].plan.checkpoint, [LOSS[0], LOSS[0]])
    tracking.flush()
    assert store.rows() == [(LOSS[0].key, LOSS[0].step, LOSS[0].value)]


def test_what_is_published_while_the_store_is_down_waits_and_then_arrives_undisturbed(store: Store) -> None:
    tracking = store.open()
    publish(tracking, 0)
    tracking.flush()
    with store.down():
        publish(tracking, 1)
        publish(tracking, 2)
        assert tracking.flush() == 4  # two records and two pieces of the curve
    assert store.rows() == expected(0)
    tracking.close()
    assert store.open().flush() == 0  # a new process does not wait for the back-off of the old one
    assert store.rows() == expected(0, 1, 2)


def test_publishing_nothing_queues_nothing(store: Store) -> None:
    tracking = store.open()
    tracking.publish_curves(RUN.records[0].plan.checkpoint, [])
    assert tracking.flush() == 0
    assert store.rows() == []


def test_closing_twice_is_harmless(store: Store) -> None:
    tracking = store.open()
    tracking.close()
    tracking.close()


def test_two_processes_on_postgresql_never_send_at_once(postgres_url: str) -> None:
    first, second = open_database(postgres_url), open_database(postgres_url)
    with lock_if_free(first, "sender ") as mine, lock_if_free(second, "sender ") as theirs:
        assert mine
        assert not theirs
    with lock_if_free(second, "sender ") as theirs:
        assert theirs
    first.dispose()
    second.dispose()


# --- what must have arrived


def with_failure(record: EvalRecord, benchmark: str) -> EvalRecord:
    """Return what was known of `record` an hour earlier, when one benchmark had failed."""
    failure = BenchmarkFailure(benchmark=benchmark, fingerprint="", code="E", message="", hint="", retryable=True)
    outcomes = tuple(failure if o.benchmark == benchmark else o for o in record.outcomes)
    return replace(record, outcomes=outcomes, finished_at=record.finished_at - timedelta(hours=1))


def publish(tracking: Tracking, *indexes: int) -> None:
    """Do what the tick does with the checkpoints at `indexes`."""
    for index in indexes:
        checkpoint = RUN.records[index].plan.checkpoint
        tracking.publish_curves(checkpoint, [p for p in LOSS if p.step <= checkpoint.step])
        tracking.publish(RUN.records[index], RUN.reports[index])


def expected(*indexes: int) -> list[Row]:
    """Return the rows of those checkpoints, each once; curves are there when a later step was published."""
    metrics = [m for i in indexes for m in tracking_batch(RUN.records[i], RUN.reports[i]).metrics]
    rows = [(m.key, m.step, m.value) for m in metrics]
    last = RUN.records[max(indexes)].plan.checkpoint.step
    return sorted(rows + [(p.key, p.step, p.value) for p in LOSS if p.step <= last])


# --- the stores


@dataclass(frozen=True, kw_only=True)
class Behind:
    """What an outbox delivers to."""

    sink: Callable[[], TrackingSink]
    rows: Callable[[], list[Row]]
    down: Callable[[], AbstractContextManager[None]]


def _fake() -> Store:
    fake = FakeTracking()

    def rows() -> list[Row]:
        batches = (tracking_batch(r, report, (), fake.series[r.plan.id]) for r, report in fake.records)
        points = [(p.key, p.step, p.value) for p in fake.points]
        return sorted([*_once((batch.checkpoint.run_id, m) for batch in batches for m in batch.metrics), *points])

    return Store(open=lambda: fake, rows=rows, down=lambda: _down(fake))


def _outbox(url: str, behind: Behind, opened: ExitStack) -> Store:
    def open_again() -> Tracking:
        tracking = OutboxTracking(open_database(url), behind.sink(), FakeClock())
        opened.callback(tracking.close)
        return tracking

    return Store(open=open_again, rows=behind.rows, down=behind.down)


def _mlflow(files: MlflowFiles) -> Behind:
    return Behind(
        sink=lambda: MlflowStore(files.settings()),
        rows=lambda: sorted((m.key, m.step, m.value) for m in files.metrics()),
        down=lambda: locked(files.database),
    )


def _fake_sink() -> Behind:
    sink = FakeSink()
    return Behind(sink=lambda: sink, rows=lambda: _rows_of(sink), down=lambda: _down(sink))


def _rows_of(sink: FakeSink) -> list[Row]:
    return _once((run_of(item), m) for item in sink.items for m in _metrics_of(item))


def _metrics_of(item: TrackingItem) -> Iterable[TrackedMetric]:
    if isinstance(item, ChampionBatch | FactsBatch | IncidentsBatch):
        return ()
    return item.points if isinstance(item, CurveBatch | LiveCurveBatch) else item.metrics


def _once(metrics: Iterable[tuple[str, TrackedMetric]]) -> list[Row]:
    """Return metrics of runs as a store has them: the same value at the same time is the same row."""
    found = {(run_id, m.key, m.step, m.timestamp_ms, m.value) for run_id, m in metrics}
    return sorted((key, step, value) for _, key, step, _, value in found)


@contextmanager
def _down(sink: FakeSink | FakeTracking) -> Iterator[None]:
    sink.is_down = True
    try:
        yield
    finally:
        sink.is_down = False
