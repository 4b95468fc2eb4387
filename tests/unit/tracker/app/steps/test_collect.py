"""What goes when a budget is reached, over real pins and a history that holds what was measured."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointIncomplete, CheckpointSkipped
from eval_jobs.types import Checkpoint, EvalRecord
from tests import trainer
from tests.fakes.clock import FakeClock
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.app.steps.collect import Keeping, StoredItem, collect
from tracker.domain.best.retention import KeepPolicy, identity_of
from tracker.domain.records.policy import Pinned
from tracker.domain.records.types import Gap

RUN = forgetting_run(trouble=False)
STEPS = [record.plan.checkpoint.step for record in RUN.records]
NOW = FakeClock().now()

Keep = Callable[..., Keeping]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """A run whose first checkpoints were measured, pinned below `tmp_path`."""

    def prepared(*, measured: int = len(STEPS), baseline: Pinned | None = None, **policy: int) -> Keeping:
        history, queue, clock = FakeHistory(), FakeQueue(), FakeClock()
        for index, record in enumerate(RUN.records):
            folder = trainer.save(tmp_path / "out", STEPS[index], seed=index)
            pinned = pin_folder(folder, run_id=RUN.run_id, pins_dir=tmp_path / "pins")
            mine = _of(record, pinned)
            if index < measured:
                history.append(mine)
            else:
                queue.add(mine.plan, now=clock.now())
        pins = FolderOfPins(tmp_path / "pins")
        return Keeping(
            run=RUN.run_id,
            pins=pins,
            queue=queue,
            records=history,
            texts=history,
            gaps=history,
            policy=KeepPolicy(**policy),
            baseline=baseline,
        )

    return prepared


def kept_pins(keeping: Keeping) -> list[int]:
    return [pin.checkpoint.step for pin in keeping.pins.held()]


def of_kind(items: tuple[StoredItem, ...], kind: str) -> dict[int, bool]:
    return {item.choice.checkpoint.step: item.is_deleted for item in items if item.kind == kind}


def gap(step: int, code: str) -> Gap:
    now = FakeClock().now()
    return Gap(run_id=RUN.run_id, step=step, source_uri="", code=code, message="", hint="", seen_at=now)


def test_the_last_the_first_and_the_best_are_kept(keep: Keep) -> None:
    keeping = keep(pins=2)
    best = _best(keeping)
    collect(keeping)
    assert kept_pins(keeping) == sorted({STEPS[0], *STEPS[-2:]} | best)
    assert len(kept_pins(keeping)) < len(STEPS)


def test_a_dry_run_says_what_would_go_and_changes_nothing(keep: Keep) -> None:
    keeping = keep(pins=2, samples=1)
    said = collect(keeping, dry_run=True)
    assert kept_pins(keeping) == STEPS
    assert len(keeping.texts.texts(RUN.run_id)) == len(STEPS)
    assert collect(keeping) == said


def test_doing_it_twice_changes_nothing_more(keep: Keep) -> None:
    keeping = keep(pins=2, samples=1)
    collect(keeping)
    left = kept_pins(keeping)
    assert not any(item.is_deleted for item in collect(keeping))
    assert kept_pins(keeping) == left


def test_the_baseline_is_always_kept(keep: Keep) -> None:
    without, with_it = keep(pins=1), keep(pins=1, baseline=Pinned(run_id=RUN.run_id, step=STEPS[1]))
    assert of_kind(collect(without, dry_run=True), "pin")[STEPS[1]]
    collect(with_it)
    assert STEPS[1] in kept_pins(with_it)


def test_what_is_not_measured_yet_or_not_even_planned_is_kept(keep: Keep) -> None:
    planned = keep(measured=2, pins=1)
    for keeping in (planned, replace(planned, queue=FakeQueue())):
        collect(keeping)
        assert kept_pins(keeping) == STEPS


def test_what_was_skipped_counts_against_the_budget(keep: Keep) -> None:
    keeping = replace(keep(measured=1, pins=1), queue=FakeQueue())
    for step in STEPS[1:-1]:
        keeping.gaps.append_gap(gap(step, CheckpointSkipped.code))
    collect(keeping)
    assert kept_pins(keeping) == [STEPS[0], STEPS[-1]]


def test_what_could_not_be_taken_at_first_and_was_found_then_is_kept(keep: Keep) -> None:
    keeping = replace(keep(measured=1, pins=1), queue=FakeQueue())
    keeping.gaps.append_gap(gap(STEPS[1], CheckpointIncomplete.code))
    collect(keeping)
    assert STEPS[1] in kept_pins(keeping)


def test_what_latency_is_compared_with_is_kept_although_a_lower_step_came_later(keep: Keep) -> None:
    keeping = keep(pins=1)
    reference = keeping.records.records(RUN.run_id)[4].plan.checkpoint
    for plan_id in [record.plan.id for record in keeping.records.records(RUN.run_id)[5:]]:
        record = keeping.records.record(plan_id)
        assert record is not None
        keeping.records.append(replace(record, plan=replace(record.plan, reference=reference)))
    assert STEPS[4] not in _best(keeping)
    collect(keeping)
    assert STEPS[4] in kept_pins(keeping)


def test_what_is_of_another_run_is_left_to_its_own_settings(keep: Keep) -> None:
    keeping = replace(keep(pins=1, samples=1), run="another")
    assert collect(keeping) == ()
    assert kept_pins(keeping) == STEPS
    assert len(keeping.texts.texts(RUN.run_id)) == len(STEPS)


def test_a_checkpoint_that_is_measured_again_keeps_its_pin(keep: Keep) -> None:
    keeping = keep(pins=1)
    again = keeping.records.records(RUN.run_id)[1].plan
    queue = FakeQueue()
    queue.add(replace(again, id="again"), now=FakeClock().now())
    collect(replace(keeping, queue=queue))
    assert STEPS[1] in kept_pins(keeping)


def test_a_checkpoint_that_waits_to_be_asked_again_keeps_its_pin(keep: Keep) -> None:
    keeping = keep(pins=1)
    waiting = next(pin.checkpoint for pin in keeping.pins.held() if pin.checkpoint.step == STEPS[1])
    collect(replace(keeping, waiting=frozenset({identity_of(waiting)})))
    assert STEPS[1] in kept_pins(keeping)
    collect(keeping)
    assert STEPS[1] not in kept_pins(keeping)


def test_a_pin_in_use_is_left_for_the_next_time(keep: Keep) -> None:
    keeping = keep(pins=1)
    goes = next(step for step, goes in of_kind(collect(keeping, dry_run=True), "pin").items() if goes)
    used = next(pin.checkpoint for pin in keeping.pins.held() if pin.checkpoint.step == goes)
    with keeping.pins.in_use(used):
        assert not of_kind(collect(keeping), "pin")[goes]
    assert of_kind(collect(keeping), "pin")[goes]


def test_answers_go_by_a_budget_of_their_own_and_scores_stay(keep: Keep) -> None:
    keeping = keep(samples=1)
    best = _best(keeping)
    before = [s.steps for s in keeping.records.scores(RUN.run_id).series.values()]
    collect(keeping)
    plans = {r.plan.id: r.plan.checkpoint.step for r in keeping.records.records(RUN.run_id)}
    assert {plans[plan_id] for plan_id in keeping.texts.texts(RUN.run_id)} == {STEPS[0], STEPS[-1]} | best
    assert [s.steps for s in keeping.records.scores(RUN.run_id).series.values()] == before
    assert kept_pins(keeping) == STEPS


def test_without_a_budget_everything_stays(keep: Keep) -> None:
    keeping = keep()
    items = collect(keeping)
    assert not any(item.is_deleted for item in items)
    assert kept_pins(keeping) == STEPS


# --- private


def _of(record: EvalRecord, pinned: Checkpoint) -> EvalRecord:
    return replace(record, plan=replace(record.plan, checkpoint=pinned))


def _best(keeping: Keeping) -> set[int]:
    items = collect(keeping, dry_run=True)
    return {i.choice.checkpoint.step for i in items if any(r.startswith("best on") for r in i.choice.reasons)}
