"""Which records others measured. Pure."""

from collections.abc import Iterable

from eval_jobs.types import Checkpoint, EvalRecord

IMPORTED = "imported"
"""The way in which weights got into an engine that was never ours."""


def is_imported(record: EvalRecord) -> bool:
    """Return whether a record was made by `tracker import`."""
    return record.engine is not None and record.engine.load_method == IMPORTED


def stands_for_import(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint only stands for results of others: nothing of it was ever held."""
    return checkpoint.uri.startswith(f"{IMPORTED}:")


def benchmarks_without_samples(records: Iterable[EvalRecord]) -> tuple[str, ...]:
    """Return the benchmarks of which only means are known somewhere in a run, in the order of their first record."""
    results = (o for record in records for o in record.results)
    return tuple(dict.fromkeys(o.benchmark for o in results if o.aggregate is not None))


def first_checkpoint(checkpoint: Checkpoint, records: Iterable[EvalRecord]) -> Checkpoint:
    """Return the first checkpoint of its run that was measured here, or `checkpoint` itself."""
    known = (record.plan.checkpoint for record in records if not is_imported(record))
    return min((*known, checkpoint), key=lambda c: c.step)
