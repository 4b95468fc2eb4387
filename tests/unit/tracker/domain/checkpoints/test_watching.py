from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eval_jobs.types import CheckpointFormat
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import Facts, FileFact
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import (
    PROMPT_S,
    STALLED_S,
    FileChange,
    Observation,
    change_of,
    gap_is_due,
    missed_steps,
    settles_in_s,
    time_of_ns,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * 1_000_000_000
SETTLE_S = 3.0
LOOK = Observation(now=NOW, settle_s=SETTLE_S)
WAITING = NotYet(code="E-CKPT-INCOMPLETE", reason="a shard is missing", hint="wait")
PICKLE = Rejected(code="E-CKPT-UNSAFE", reason="a pickle", hint="convert it")


def complete(*, is_end_proven: bool) -> Complete:
    return Complete(
        format=CheckpointFormat.FULL,
        base_model=None,
        weights=("model.safetensors",),
        held=("model.safetensors",),
        step=10,
        ranks=0,
        has_trainer_state=is_end_proven,
        is_end_proven=is_end_proven,
    )


def file(name: str, *, mtime_ns: int = 1, inode: int = 1) -> FileFact:
    return FileFact(name=name, size=1, mtime_ns=mtime_ns, inode=inode)


def facts(*files: FileFact) -> Facts:
    return Facts(path="/x", mtime_ns=0, files=files)


def is_settled(complete: Complete, newest_ns: int, unchanged_since: datetime, look: Observation) -> bool:
    return settles_in_s(complete, newest_ns, unchanged_since, look) == 0


def test_new_files_beside_the_held_ones_change_nothing() -> None:
    assert change_of([file("a")], facts(file("a"), file("b"))) is FileChange.SAME


def test_files_that_only_go_mean_deletion() -> None:
    assert change_of([file("a"), file("b")], facts(file("b"))) is FileChange.SHRUNK
    assert change_of([file("a")], facts()) is FileChange.SHRUNK


@pytest.mark.parametrize("after", [file("a", mtime_ns=2), file("a", inode=2), replace(file("a"), size=2)])
def test_a_file_written_again_is_a_change_even_while_others_go(after: FileFact) -> None:
    assert change_of([file("a"), file("b")], facts(after)) is FileChange.CHANGED


def test_an_old_checkpoint_with_the_trainers_last_file_is_settled_at_first_sight() -> None:
    old_ns = NOW_NS - 60_000_000_000
    assert is_settled(complete(is_end_proven=True), old_ns, NOW, LOOK)
    assert not is_settled(complete(is_end_proven=False), old_ns, NOW, LOOK)


def test_a_wrong_clock_of_the_file_server_only_delays() -> None:
    future_ns = NOW_NS + 3600_000_000_000
    assert not is_settled(complete(is_end_proven=True), future_ns, NOW, LOOK)
    assert is_settled(complete(is_end_proven=True), future_ns, NOW - timedelta(seconds=3), LOOK)


HEARD_NS = NOW_NS - 300_000_000 + 1
"""Newest file time of a checkpoint that was finished just longer ago than PROMPT_S."""


def heard(before_s: float, *, settle_s: float = SETTLE_S) -> Observation:
    """A look whose last file event came `before_s` ago."""
    return Observation(now=NOW, settle_s=settle_s, heard_at=NOW - timedelta(seconds=before_s))


def test_a_short_wait_is_enough_where_the_end_is_proven_and_was_heard() -> None:
    since = NOW - timedelta(seconds=PROMPT_S)
    assert is_settled(complete(is_end_proven=True), HEARD_NS, since, heard(0.3))
    assert not is_settled(complete(is_end_proven=True), NOW_NS - 50_000_000, NOW, heard(0.3))


@pytest.mark.parametrize(
    ("is_end_proven", "newest_ns", "look"),
    [
        (False, HEARD_NS, heard(0.3)),  # nothing but quiet tells the end
        (True, HEARD_NS, LOOK),  # no event: a file server that others write to, or polling
        (True, HEARD_NS, heard(1.5)),  # the last event is older than what was written
        (True, NOW_NS - 1_000_000_000, heard(0.3)),  # whole seconds: a second writing could look the same
    ],
)
def test_the_long_wait_stays_wherever_something_is_unsure(
    is_end_proven: bool,  # noqa: FBT001
    newest_ns: int,
    look: Observation,
) -> None:
    since = NOW - timedelta(seconds=PROMPT_S)
    assert not is_settled(complete(is_end_proven=is_end_proven), newest_ns, since, look)
    assert is_settled(complete(is_end_proven=is_end_proven), newest_ns, NOW - timedelta(seconds=SETTLE_S), look)


def test_a_setting_below_the_short_wait_is_obeyed() -> None:
    assert is_settled(complete(is_end_proven=True), NOW_NS - 1, NOW, heard(0.0, settle_s=0.0))


@pytest.mark.parametrize("is_end_proven", [True, False])
@pytest.mark.parametrize("age_s", [0.0, 1.0, 2.9, 3.0, 100.0])
@pytest.mark.parametrize("heard_at", [None, NOW])
def test_the_wait_ends_exactly_when_it_is_settled(is_end_proven: bool, age_s: float, heard_at: datetime | None) -> None:  # noqa: FBT001
    since = NOW - timedelta(seconds=age_s)
    look = Observation(now=NOW, settle_s=SETTLE_S, heard_at=heard_at)
    wait_s = settles_in_s(complete(is_end_proven=is_end_proven), NOW_NS, since, look)
    later = Observation(now=NOW + timedelta(seconds=wait_s), settle_s=SETTLE_S, heard_at=heard_at)
    assert is_settled(complete(is_end_proven=is_end_proven), NOW_NS, since, look) == (wait_s == 0)
    assert is_settled(complete(is_end_proven=is_end_proven), NOW_NS, since, later)


def test_an_unfinished_folder_is_a_gap_once_a_later_one_is_complete() -> None:
    since = NOW - timedelta(seconds=3)
    assert gap_is_due(WAITING, since, NOW, 3.0, is_passed=True)
    assert not gap_is_due(WAITING, since, NOW, 3.0, is_passed=False)
    assert not gap_is_due(WAITING, NOW, NOW, 3.0, is_passed=True)


def test_an_unfinished_folder_is_a_gap_after_a_long_time_without_change() -> None:
    assert gap_is_due(WAITING, NOW - timedelta(seconds=STALLED_S), NOW, 3.0, is_passed=False)


def test_a_rejected_folder_is_a_gap_as_soon_as_it_is_quiet() -> None:
    assert gap_is_due(PICKLE, NOW - timedelta(seconds=3), NOW, 3.0, is_passed=False)
    assert not gap_is_due(PICKLE, NOW, NOW, 3.0, is_passed=False)


def test_a_step_missing_in_a_shown_rhythm_is_missed() -> None:
    assert missed_steps({10: 10, 20: 10, 50: 10}) == (range(30, 50, 10),)
    assert missed_steps({10: None, 30: 10, 40: 10}) == (range(20, 30, 10),)
    assert missed_steps({100: 100, 200: 100, 10**12: 100}) == (range(300, 10**12, 100),)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {50: 10},
        {10: 10, 40: 10},  # the rhythm was never shown: it may save by epochs
        {10: 10, 20: 10, 30: 10},
        {100: 100, 200: 100, 250: 50, 300: 50},  # the rhythm became faster on the way
        {10: None, 20: None, 40: None},
        {7: 10, 17: 10, 40: 10},  # not multiples
        {10: 10, 20: 10, 25: 10},  # the last save of a training that ends between two
    ],
)
def test_no_step_is_missed_without_proof(known: dict[int, int | None]) -> None:
    assert missed_steps(known) == ()


def test_file_times_are_utc() -> None:
    assert time_of_ns(NOW_NS) == NOW
