"""Which checkpoints a rewind leaves behind, from folders, digests and file times."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from eval_jobs.types import Checkpoint
from tests.records import checkpoint_of
from tracker.domain.records.branches import Branches, branches_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def checkpoint(step: int, minute: float, digest: str = "", *, source: str = "") -> Checkpoint:
    return replace(
        checkpoint_of("run", step),
        source_uri=source or f"/out/checkpoint-{step}",
        digest=digest or f"{step}-{minute}",
        ready_at=START + timedelta(minutes=minute),
    )


A = {step: checkpoint(step, step / 100) for step in (100, 200, 300, 400, 500)}
"""The first try."""
B = {step: checkpoint(step, 10 + step / 100) for step in (300, 400, 500, 600)}
"""Training went back to 300."""
C = {step: checkpoint(step, 20 + step / 100) for step in (400, 500)}
"""And then to 400."""


def left(branches: Branches, *checkpoints: Checkpoint) -> list[int]:
    return [c.step for c in checkpoints if branches.left_by(c) is not None]


def test_a_run_that_never_went_back_leaves_nothing() -> None:
    branches = branches_of(A.values())
    assert branches == Branches()
    assert all(branches.sees(one, other) for one, other in permutations(A.values(), 2))


def test_what_is_older_than_a_rewritten_step_and_not_below_it_was_left() -> None:
    branches = branches_of((*A.values(), B[300]))
    assert left(branches, *A.values()) == [300, 400, 500]
    assert branches.left_by(A[500]) == B[300]
    assert left(branches, B[300]) == []


def test_the_past_of_a_new_checkpoint_holds_none_of_the_branch_that_was_left() -> None:
    branches = branches_of((*A.values(), B[300], B[400]))
    assert [c.step for c in (*A.values(), B[300]) if branches.sees(B[400], c)] == [100, 200, 300]
    assert branches.sees(B[400], B[300])
    assert not branches.sees(B[400], A[300])


def test_a_checkpoint_that_was_left_sees_its_own_branch_and_not_the_new_one() -> None:
    branches = branches_of((*A.values(), *B.values()))
    assert all(branches.sees(A[500], other) for other in A.values())
    assert not any(branches.sees(A[500], other) for other in B.values())


def test_training_may_go_back_again_and_again() -> None:
    everything = (*A.values(), *B.values(), *C.values())
    branches = branches_of(everything)
    assert [(c.step, c in A.values()) for c in everything if branches.sees(C[500], c)] == [
        (100, True),
        (200, True),
        (300, False),
        (400, False),
        (500, False),
    ]
    assert left(branches, *B.values()) == [400, 500, 600]
    assert branches.sees(B[600], B[400])
    assert not branches.sees(B[600], C[400])


def test_the_order_in_which_checkpoints_become_known_does_not_matter() -> None:
    some = (A[100], A[300], A[400], B[300], C[400])
    assert {branches_of(order) for order in permutations(some)} == {branches_of(some)}


def test_copied_folders_whose_times_are_in_any_order_are_no_rewind() -> None:
    copied = [checkpoint(step, minute) for minute, step in enumerate((100, 1000, 200, 300))]
    assert branches_of(copied) == Branches()


def test_the_same_weights_saved_again_are_no_rewind() -> None:
    again = checkpoint(300, 50, A[300].digest)
    assert branches_of((*A.values(), again)) == Branches()


@pytest.mark.parametrize("source", ["/models/base", "/out/final", "/out/checkpoint-best"])
def test_folders_without_the_step_in_their_name_are_overwritten_for_any_reason(source: str) -> None:
    one, two = checkpoint(0, 1, source=source), checkpoint(0, 60, source=source)
    assert branches_of((*A.values(), one, two)) == Branches()


def test_models_of_other_folders_are_not_left_behind() -> None:
    other = checkpoint(500, 1, source="/elsewhere/checkpoint-500")
    same_step = checkpoint(300, 1, source="/elsewhere/checkpoint-300")
    assert left(branches_of((*A.values(), other, same_step, *B.values())), other, same_step) == []


def test_steps_with_leading_zeros_and_buckets_are_known_by_their_names() -> None:
    old = checkpoint(300, 1, source="s3://bucket/run/step_000300")
    new = checkpoint(300, 2, source="s3://bucket/run/step_000300")
    assert left(branches_of((old, new)), old, new) == [300]
