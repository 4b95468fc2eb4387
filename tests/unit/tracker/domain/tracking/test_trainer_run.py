"""A run of the store is joined only when it is proven to be the trainer's own."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.records import forgetting_run
from tracker.domain.tracking.batch import timestamp_ms
from tracker.domain.tracking.trainer_run import RunCandidate, is_trainers_run, may_be_trainers_run

CHECKPOINT = replace(
    forgetting_run(checkpoints=1, samples=4).records[0].plan.checkpoint,
    ready_at=datetime(2026, 3, 14, tzinfo=UTC),
)
READY_MS = timestamp_ms(CHECKPOINT)
LOSSES = {10: 2.5, 20: 2.25}
FOLDERS = ["/runs/sft"]


SLOW_STORE: dict[int, list[float]] = {}
"""None of the losses has arrived."""
ONE = {10: [2.5]}


def test_a_run_is_the_trainers_own_by_its_folder_its_losses_or_while_it_is_open_and_by_no_less() -> None:
    own = {
        "the same folder and losses": candidate(losses={10: [2.5], 20: [2.25], 30: [2.0]}),
        "a trailing slash": candidate("/runs/sft/", losses=ONE),
        "two losses at a step, of a run that was resumed": candidate(losses={10: [2.5], 20: [2.4, 2.25]}),
        "a relative folder with equal losses": candidate("./sft", losses=ONE),
        "a bare folder with equal losses": candidate("sft", losses=ONE),
        "a store that is slower than the disk": candidate(losses=SLOW_STORE),
        "the same, and the run ended later": candidate(losses=SLOW_STORE, ended_ms=READY_MS + 1),
    }
    another = {
        "another loss at one step": candidate(losses={10: [2.5], 20: [2.26]}),
        "another folder with equal losses": candidate("/runs/sft-2", losses=ONE),
        "the folder above with equal losses": candidate("/runs", losses=ONE),
        "no folder with equal losses": candidate("", losses=ONE),
        "a relative folder without losses": candidate("sft", losses=SLOW_STORE),
        "ended before": candidate(losses=SLOW_STORE, started_ms=READY_MS - 2000, ended_ms=READY_MS - 1000),
        "started after": candidate(losses=SLOW_STORE, started_ms=READY_MS + 1),
    }
    joined = [
        name for name, run in (own | another).items() if is_trainers_run(run, FOLDERS, timestamp_ms(CHECKPOINT), LOSSES)
    ]
    assert joined == list(own)


def candidate(
    output_dir: str = "/runs/sft",
    *,
    losses: dict[int, list[float]],
    started_ms: int = READY_MS - 1000,
    ended_ms: int | None = None,
) -> RunCandidate:
    return RunCandidate(output_dir=output_dir, started_ms=started_ms, ended_ms=ended_ms, losses=losses)


def test_a_relative_folder_is_no_evidence_without_a_common_loss() -> None:
    for output_dir, losses, is_ours in (
        ("outputs", {}, False),
        ("outputs", {10: (7.0,)}, False),
        ("outputs", {10: (2.5,)}, True),
        ("/data/outputs", {}, True),
        ("/data/outputs", {10: (7.0,)}, False),
        ("/other/outputs", {10: (2.5,)}, False),
    ):
        run = RunCandidate(output_dir=output_dir, started_ms=0, ended_ms=None, losses=losses)
        assert may_be_trainers_run(run, ("/data/outputs",), 5, {10: 2.501}) == is_ours
    open_run = RunCandidate(output_dir="outputs", started_ms=0, ended_ms=None, losses={10: (2.5,)})
    assert not may_be_trainers_run(open_run, ("/data/outputs",), 5, {})  # incidents have no losses
