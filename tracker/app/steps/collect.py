"""`tracker gc`, also done by a watcher after reviews: deletes what the retention settings do not keep.

Only the tracker's own pins and the texts of answers are deleted. The trainer's files are never touched; scores stay.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.errors import CheckpointSkipped
from eval_jobs.ports import QueueStatus
from eval_jobs.records.run_scope import is_of
from tracker.domain.best import retention
from tracker.domain.records.branches import branches_of
from tracker.domain.records.policy import Pinned
from tracker.domain.verdicts.rewind import scores_of_newest
from tracker.ports import GapStore, JudgedRecordStore, Pins, TextStore


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What `collect` works with."""

    run: str
    """Name of the run; data of other runs in the same place is left to their own settings."""
    pins: Pins
    queue: QueueStatus
    records: JudgedRecordStore
    texts: TextStore
    gaps: GapStore
    policy: retention.KeepPolicy
    baseline: Pinned | None = None
    waiting: frozenset[retention.Identity] = frozenset()
    """Evaluated checkpoints that are to be asked again, and not queued yet."""


@dataclass(frozen=True, kw_only=True)
class StoredItem:
    """A pin, or the texts of a checkpoint's answers, and whether it is kept or deleted."""

    kind: str
    """`pin` or `answers`."""
    choice: retention.RetentionDecision
    own_bytes: int
    """Bytes that deleting it frees."""
    is_deleted: bool


def collect(keeping: Keeping, *, dry_run: bool = False) -> tuple[StoredItem, ...]:
    """Delete what is not kept, and return every item that was examined, by kind, run and step.

    With `dry_run` nothing is changed, and what would be deleted has `is_deleted` set. A pin in use is kept this time.
    """
    return (*_collect_pins(keeping, dry_run=dry_run), *_collect_texts(keeping, dry_run=dry_run))


def _collect_pins(keeping: Keeping, *, dry_run: bool) -> Iterator[StoredItem]:
    pins = {
        retention.identity_of(pin.checkpoint): pin
        for pin in keeping.pins.held()
        if is_of(pin.checkpoint.run_id, keeping.run)
    }
    reasons = _reasons(keeping, pins)
    for choice in retention.decide_retention(pins, keep=keeping.policy.pins, reasons=reasons):
        pin = pins[choice.checkpoint]
        goes = not choice.reasons and (dry_run or keeping.pins.release(pin))
        yield StoredItem(kind="pin", choice=choice, own_bytes=pin.own_bytes, is_deleted=goes)


def _collect_texts(keeping: Keeping, *, dry_run: bool) -> Iterator[StoredItem]:
    if keeping.policy.samples is not None:
        for run_id in keeping.records.runs():
            if is_of(run_id, keeping.run):
                yield from _texts_of(keeping, run_id, dry_run=dry_run)


def _texts_of(keeping: Keeping, run_id: str, *, dry_run: bool) -> Iterator[StoredItem]:
    sizes = keeping.texts.texts(run_id)
    plans: dict[retention.Identity, list[str]] = {}
    for record in keeping.records.records(run_id):
        if record.plan.id in sizes:
            plans.setdefault(retention.identity_of(record.plan.checkpoint), []).append(record.plan.id)
    for choice in retention.decide_retention(plans, keep=keeping.policy.samples, reasons=_reasons(keeping, plans)):
        goes = not choice.reasons
        of_checkpoint = plans[choice.checkpoint]
        if goes and not dry_run:
            for plan_id in of_checkpoint:
                keeping.texts.forget_texts(plan_id)
        own_bytes = sum(sizes[plan_id] for plan_id in of_checkpoint)
        yield StoredItem(kind="answers", choice=choice, own_bytes=own_bytes, is_deleted=goes)


def _reasons(keeping: Keeping, held: Iterable[retention.Identity]) -> Mapping[retention.Identity, Sequence[str]]:
    by_run: dict[str, list[retention.Identity]] = {}
    for checkpoint in held:
        by_run.setdefault(checkpoint.run_id, []).append(checkpoint)
    return retention.merged(*(_standing(keeping, run_id, of_run) for run_id, of_run in by_run.items()))


def _standing(
    keeping: Keeping, run_id: str, held: Sequence[retention.Identity]
) -> Mapping[retention.Identity, tuple[str, ...]]:
    """Return the reasons to keep checkpoints of a run: from its results, and evaluations that are still to come."""
    plans = [record.plan for record in keeping.records.records(run_id)]
    measured = {retention.identity_of(plan.checkpoint) for plan in plans}
    references = {retention.identity_of(plan.reference) for plan in plans if plan.reference is not None}
    first = min(checkpoint.step for checkpoint in (*measured, *held))
    branches = branches_of(plan.checkpoint for plan in plans)
    return retention.merged(
        dict.fromkeys(_unfinished(keeping, run_id, held, measured), (retention.UNFINISHED,)),
        {c: (retention.FIRST,) for c in held if c.step == first},
        dict.fromkeys(references, (retention.REFERENCE,)),
        {c: (retention.BASELINE,) for c in held if keeping.baseline == Pinned(run_id=c.run_id, step=c.step)},
        retention.best_checkpoints(
            scores_of_newest(keeping.records.scores(run_id), branches), keeping.records.incidents(run_id)
        ),
    )


def _unfinished(
    keeping: Keeping, run_id: str, held: Iterable[retention.Identity], measured: Collection[retention.Identity]
) -> Iterator[retention.Identity]:
    on_their_way = keeping.queue.open_steps(run_id)
    skipped = {gap.step for gap in keeping.gaps.gaps(run_id) if gap.code == CheckpointSkipped.code}
    for checkpoint in held:
        is_settled = checkpoint in measured or checkpoint.step in skipped
        is_open = checkpoint.step in on_their_way or checkpoint in keeping.waiting
        if is_open or not is_settled:
            yield checkpoint
