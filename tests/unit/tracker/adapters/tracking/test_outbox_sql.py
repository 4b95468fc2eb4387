"""The outbox sends oldest first, backs off, says so once, and survives a kill between any two statements."""

import itertools
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.queue.database_sql import open_database
from eval_jobs.types import EvalResult
from tests.fakes.clock import FakeClock
from tests.fakes.tracking import FakeSink
from tests.records import forgetting_run
from tracker.adapters.database.lock_sql import lock_if_free
from tracker.adapters.tracking.outbox_sql import (
    BACKOFF,
    FLUSH_BUDGET_S,
    MAX_REFUSALS,
    POINTS_PER_ITEM,
    OutboxTracking,
)
from tracker.domain.records.tracking import (
    Champion,
    ChampionBatch,
    CurveBatch,
    LiveItem,
    TrackingBatch,
    TrackingItem,
    run_of,
)
from tracker.domain.records.types import CurvePoint, Report, VerdictWord

RUN = forgetting_run(checkpoints=4, samples=6, trouble=False)
CHECKPOINT = RUN.records[3].plan.checkpoint

Open = Callable[..., OutboxTracking]


class Killed(BaseException):
    """Stands for `kill -9` at this line: nothing of ours runs after it."""


class KilledWhileSending(FakeSink):
    """Ends the process before or after the store has taken the item."""

    def __init__(self, *, taken: bool) -> None:
        super().__init__()
        self._taken = taken

    def send(self, item: TrackingItem) -> None:
        if self._taken:
            super().send(item)
        raise Killed


class SlowSink(FakeSink):
    """Takes as long for an item as a store on the other side of the world."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__()
        self._clock, self._seconds = clock, seconds

    def send(self, item: TrackingItem) -> None:
        self._clock.advance(self._seconds)
        super().send(item)


class ListeningSink(FakeSink):
    """Remembers the words of every item in the order of their arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[set[str]] = []

    def send(self, item: TrackingItem) -> None:
        assert isinstance(item, TrackingBatch)
        self.words.append({str(v.word) for v in item.verdicts})
        super().send(item)


class UnusableSink(FakeSink):
    """Is set up wrongly."""

    def send(self, item: TrackingItem) -> None:
        del item
        self.attempts += 1
        raise ConfigError("MLflow has no run abc", hint="correct tracking.run_id")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def outbox(tmp_path: Path, clock: FakeClock) -> Iterator[Open]:
    with ExitStack() as opened:

        def open_again(sink: FakeSink) -> OutboxTracking:
            tracking = OutboxTracking(open_database(f"sqlite:///{tmp_path}/tracker.db"), sink, clock)
            opened.callback(tracking.close)
            return tracking

        yield open_again


def publish(tracking: OutboxTracking, *indexes: int) -> None:
    for index in indexes:
        tracking.publish(RUN.records[index], RUN.reports[index])


def steps(sink: FakeSink) -> list[int]:
    return [0 if isinstance(item, LiveItem) else item.checkpoint.step for item in sink.items]


def test_items_are_sent_in_the_order_of_their_arrival(outbox: Open) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    publish(tracking, 2, 0, 3)
    tracking.flush()
    assert steps(sink) == [300, 100, 400]


def test_what_is_sent_is_what_was_published_samples_included(outbox: Open) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    publish(tracking, 0)
    tracking.flush()
    (item,) = sink.items
    assert isinstance(item, TrackingBatch)
    assert item.report == RUN.reports[0]
    assert item.checkpoint == RUN.records[0].plan.checkpoint
    assert item.samples[0].samples[0].prompt


@pytest.mark.parametrize("taken", [False, True])
def test_a_kill_around_the_sending_loses_nothing_and_doubles_nothing(outbox: Open, taken: bool) -> None:  # noqa: FBT001
    killer = KilledWhileSending(taken=taken)
    tracking = outbox(killer)
    publish(tracking, 0, 1)
    with pytest.raises(Killed):
        tracking.flush()
    sink = FakeSink()
    sink.items = killer.items
    assert outbox(sink).flush() == 0
    assert steps(sink) == [100, 200]


def test_a_store_that_is_away_is_not_asked_for_every_item(outbox: Open) -> None:
    sink = FakeSink()
    sink.is_down = True
    tracking = outbox(sink)
    publish(tracking, 0, 1, 2)
    assert tracking.flush() == 3
    assert sink.attempts == 1


def test_the_waits_double_up_to_a_limit(outbox: Open, clock: FakeClock) -> None:
    sink = FakeSink()
    sink.is_down = True
    tracking = outbox(sink)
    publish(tracking, 0)
    asked_at = []
    for _ in range(400):
        before = sink.attempts
        tracking.flush()
        if sink.attempts > before:
            asked_at.append(clock.now())
        clock.advance(BACKOFF.first_s)
    waits = [(b - a).total_seconds() for a, b in itertools.pairwise(asked_at)]
    assert waits[:4] == [BACKOFF.first_s, 2 * BACKOFF.first_s, 4 * BACKOFF.first_s, 8 * BACKOFF.first_s]
    assert max(waits) == BACKOFF.longest_s


def test_it_says_once_that_the_store_is_away_and_once_that_it_is_back(
    outbox: Open, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    sink.is_down = True
    publish(tracking, 0)
    for _ in range(3):
        tracking.flush()
        clock.advance(BACKOFF.longest_s)
    sink.is_down = False
    publish(tracking, 1)
    assert tracking.flush() == 0
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(lines) == 2
    assert "results not sent to MLflow, retrying" in lines[0]
    assert "MLflow reachable again" in lines[1]


def test_an_item_that_is_rejected_lets_the_others_pass_and_is_set_aside_after_five_attempts(
    outbox: Open, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FakeSink()
    sink.refuses = {100}
    tracking = outbox(sink)
    publish(tracking, 0, 1)
    waiting = []
    for _ in range(MAX_REFUSALS + 2):
        waiting.append(tracking.flush())
        clock.advance(BACKOFF.longest_s)
    assert waiting == [1] * (MAX_REFUSALS - 1) + [0] * 3
    assert (steps(sink), sink.attempts) == ([200], MAX_REFUSALS + 1)
    assert [item.reason for item in tracking.set_aside()] == ["the store refuses"]
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["set aside" in line for line in warnings] == [False, True]

    sink.refuses = set()
    restarted = outbox(sink)
    assert restarted.flush() == 0
    assert (steps(sink), restarted.set_aside()) == ([200, 100], ())


def test_a_newer_record_replaces_a_rejected_one(outbox: Open, clock: FakeClock) -> None:
    """The rejected one is never sent again: it would restore old values."""
    sink = FakeSink()
    sink.refuses = {100}
    tracking = outbox(sink)
    publish(tracking, 0)
    for _ in range(MAX_REFUSALS):
        tracking.flush()
        clock.advance(BACKOFF.longest_s)
    sink.refuses = set()
    repaired = replace(RUN.reports[0], latency=())
    tracking.publish(replace(RUN.records[0], finished_at=clock.now()), repaired)
    assert tracking.flush() == 0
    assert (len(sink.items), tracking.set_aside()) == (1, ())
    assert outbox(sink).flush() == 0
    assert len(sink.items) == 1


def test_aliases_wait_for_the_records_of_their_checkpoints(outbox: Open, clock: FakeClock) -> None:
    sink = FakeSink()
    sink.refuses = {400}
    tracking = outbox(sink)
    publish(tracking, 3)
    other = RUN.records[0].plan.checkpoint
    tracking.publish_champions(other, [Champion(alias="champion", checkpoint=CHECKPOINT, plan_id="p", reason="")])
    assert tracking.flush() == 2
    assert sink.items == []
    sink.refuses = set()
    clock.advance(BACKOFF.longest_s)
    assert tracking.flush() == 0
    assert [type(item) for item in sink.items] == [TrackingBatch, ChampionBatch]


def test_a_wrong_setting_is_no_reason_to_stop_watching(outbox: Open, caplog: pytest.LogCaptureFixture) -> None:
    sink = UnusableSink()
    tracking = outbox(sink)
    publish(tracking, 0, 1)
    assert tracking.flush() == 2
    assert sink.attempts == 1
    assert "correct tracking.run_id" in caplog.text


def test_a_slow_store_does_not_keep_the_watcher(outbox: Open, clock: FakeClock) -> None:
    sink = SlowSink(clock, FLUSH_BUDGET_S / 2)
    tracking = outbox(sink)
    publish(tracking, 0, 1, 2, 3)
    assert tracking.flush() == 2
    assert tracking.flush() == 0


def test_a_long_curve_is_sent_in_pieces(outbox: Open) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    keys = 5
    points = [CurvePoint(key=f"train/{n % keys}", step=n // keys, value=n / 7) for n in range(2 * POINTS_PER_ITEM + 1)]
    tracking.publish_curves(CHECKPOINT, points)
    assert tracking.flush() == 0
    sizes = [len(item.points) for item in sink.items if isinstance(item, CurveBatch)]
    assert sizes == [POINTS_PER_ITEM, POINTS_PER_ITEM, 1]


def test_times_of_a_curve_are_fixed_when_it_is_queued(outbox: Open, clock: FakeClock) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    tracking.publish_curves(CHECKPOINT, RUN.curves)
    clock.advance(3600)
    tracking.flush()
    (item,) = sink.items
    assert isinstance(item, CurveBatch)
    assert item.losses == {p.step: p.value for p in RUN.curves if p.key == "train/loss"}
    assert item.points[-1].timestamp_ms == int(CHECKPOINT.ready_at.timestamp() * 1000)


def test_a_value_that_changed_is_newer_than_the_one_it_replaces_and_others_keep_their_time(outbox: Open) -> None:
    sink = FakeSink()
    first = RUN.records[0]
    (result, *others) = first.outcomes
    assert isinstance(result, EvalResult)
    half = replace(result, samples=tuple(replace(s, score=0.5) for s in result.samples))
    for count, outcome in enumerate((result, half, result)):
        later = first.finished_at + timedelta(hours=count)
        record = replace(first, outcomes=(outcome, *others), finished_at=later)
        outbox(sink).publish(record, RUN.reports[0])  # each from a process of its own
    outbox(sink).flush()
    ready_ms = int(first.plan.checkpoint.ready_at.timestamp() * 1000)
    key = f"bench/{result.benchmark}"
    times = [{m.key: m.timestamp_ms for m in item.metrics} for item in sink.items if isinstance(item, TrackingBatch)]
    assert [t[key] for t in times] == [ready_ms, ready_ms + 1, ready_ms + 2]
    assert {ms for t in times for name, ms in t.items() if name != key} == {ready_ms}


def test_words_that_change_and_change_back_end_as_they_stand(outbox: Open) -> None:
    record, report = RUN.records[1], RUN.reports[1]
    sink = ListeningSink()
    for word in ("suspect", "regressed", "suspect", "suspect"):
        tracking = outbox(sink)
        tracking.publish(record, _with_word(report, VerdictWord(word)))
        tracking.flush()
    assert sink.words == [{"suspect"}, {"regressed"}, {"suspect"}]


def test_two_runs_may_have_the_same_points(outbox: Open) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    other = forgetting_run(run_id="other", checkpoints=1, samples=6).records[0].plan.checkpoint
    tracking.publish_curves(CHECKPOINT, RUN.curves)
    tracking.publish_curves(other, RUN.curves)
    tracking.flush()
    assert [run_of(item) for item in sink.items] == [CHECKPOINT.run_id, "other"]


def test_only_one_sender_sends(outbox: Open, tmp_path: Path) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    publish(tracking, 0)
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    with lock_if_free(engine, "sender ") as mine:
        assert mine
        assert tracking.flush() == 1
        assert sink.attempts == 0
    assert tracking.flush() == 0


@pytest.mark.slow
def test_a_sender_that_was_killed_leaves_no_lock_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tracker.db"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_hold_the_lock, args=(url, theirs))
    process.start()
    assert ours.recv() is True
    engine = open_database(url)
    with lock_if_free(engine, "sender ") as mine:
        assert not mine
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with lock_if_free(engine, "sender ") as mine:
        assert mine


def test_an_item_of_another_version_is_kept_and_named(
    outbox: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FakeSink()
    tracking = outbox(sink)
    publish(tracking, 0, 1)
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    with engine.begin() as connection:
        connection.execute(text("UPDATE outbox_items SET body = :body WHERE id = 1"), {"body": b"junk"})
    engine.dispose()
    assert tracking.flush() == 1
    assert steps(sink) == [200]
    assert "cannot read a pending MLflow write" in caplog.text


def test_a_database_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="missing"):
        OutboxTracking(open_database(f"sqlite:///{tmp_path}/missing/tracker.db"), FakeSink())


# --- parts


def _with_word(report: Report, word: VerdictWord) -> Report:
    return replace(report, verdicts=tuple(replace(v, word=word) for v in report.verdicts))


def _hold_the_lock(url: str, pipe: multiprocessing.connection.Connection) -> None:
    with lock_if_free(open_database(url), "sender ") as mine:
        pipe.send(mine)
        signal.pause()
