"""Which gaps are still to be told."""

from dataclasses import replace
from datetime import timedelta

from tests.records import forgetting_run
from tracker.domain.checkpoints.gaps import unsettled
from tracker.domain.records.types import Gap

RECORD = forgetting_run().records[3]
EVALUATED_AT = RECORD.finished_at
EARLIER, LATER = EVALUATED_AT - timedelta(hours=1), EVALUATED_AT + timedelta(hours=1)
GAP = Gap(
    run_id="run",
    step=RECORD.plan.checkpoint.step,
    source_uri="/out/checkpoint-400",
    code="E-CKPT-VANISHED",
    message="it was deleted",
    hint="keep more",
    seen_at=EARLIER,
)
INFERRED = replace(GAP, is_inferred=True)
OTHER = replace(GAP, code="E-CKPT-UNREADABLE")


def test_what_is_new_and_what_is_known_and_not_evaluated_stands() -> None:
    assert list(unsettled([GAP, INFERRED], (), ())) == [GAP, INFERRED]
    assert list(unsettled([GAP, INFERRED], [GAP], ())) == [GAP, INFERRED]


def test_a_gap_that_was_evaluated_after_all_is_settled() -> None:
    assert not list(unsettled([replace(GAP, seen_at=LATER)], [GAP], [RECORD]))


def test_a_step_that_is_saved_again_and_lost_is_a_gap_although_it_was_evaluated_before() -> None:
    assert list(unsettled([GAP], (), [RECORD])) == [GAP]
    lost_later = replace(GAP, seen_at=LATER)
    assert list(unsettled([lost_later], [lost_later], [RECORD])) == [lost_later]


def test_no_step_is_inferred_of_which_something_is_known() -> None:
    assert not list(unsettled([INFERRED], [OTHER], ()))
    assert not list(unsettled([INFERRED], (), [RECORD]))
    assert list(unsettled([GAP], [OTHER], ())) == [GAP]
