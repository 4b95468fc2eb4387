"""A run of the store is joined only when it is proven to be the trainer's own."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.records import forgetting_run
from tracker.domain.tracking.batch import timestamp_ms
from tracker.domain.tracking.trainer_run import RunCandidate, is_trainers_run

CHECKPOINT = replace(
    forgetting_run(checkpoints=1, samples=4).records[0].plan.checkpoint,
    ready_at=datetime(2026, 3, 14, tzinfo=UTC),
)
READY_MS = timestamp_ms(CHECKPOINT)
LOSSES = {10: 2.5, 20: 2.25}
FOLDERS = ["/runs/sft"]


def candidate(
    output_dir: str = "/runs/sft",
    losses: dict[int, list[float]] | None = None,
    *,
    started_ms: int = READY_MS - 1000,
    ended_ms: int | None = None,
) -> RunCandidate:
    return RunCandidate(output_dir=output_dir, started_ms=started_ms, ended_ms=ended_ms, losses=losses or {})


def is_own(run: RunCandidate, losses: dict[int, float] = LOSSES) -> bool:
    return is_trainers_run(run, FOLDERS, CHECKPOINT, losses)


def test_the_same_folder_and_the_same_losses_are_the_same_run() -> None:
    assert is_own(candidate(losses={10: [2.5], 20: [2.25], 30: [2.0]}))


def test_a_trailing_slash_changes_nothing() -> None:
    assert is_own(candidate("/runs/sft/", losses={10: [2.5]}))


def test_one_other_loss_is_another_run() -> None:
    assert not is_own(candidate(losses={10: [2.5], 20: [2.26]}))


def test_a_resumed_run_may_hold_two_losses_at_a_step() -> None:
    assert is_own(candidate(losses={10: [2.5], 20: [2.4, 2.25]}))


def test_another_folder_is_another_run_even_with_equal_losses() -> None:
    assert not is_own(candidate("/runs/sft-2", losses={10: [2.5]}))
    assert not is_own(candidate("/runs", losses={10: [2.5]}))
    assert not is_own(candidate("", losses={10: [2.5]}))


def test_a_relative_folder_needs_equal_losses() -> None:
    assert is_own(candidate("./sft", losses={10: [2.5]}))
    assert is_own(candidate("sft", losses={10: [2.5]}))
    assert not is_own(candidate("sft"))


def test_a_store_that_is_slower_than_the_disk_is_believed_while_the_run_is_open() -> None:
    assert is_own(candidate())
    assert is_own(candidate(ended_ms=READY_MS + 1))


def test_an_earlier_run_into_the_same_folder_is_not_joined() -> None:
    assert not is_own(candidate(started_ms=READY_MS - 2000, ended_ms=READY_MS - 1000))
    assert not is_own(candidate(started_ms=READY_MS + 1))
