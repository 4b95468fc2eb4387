"""Records that lack a part: imported ones, and those without samples. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from eval_jobs.types import Checkpoint, EvalRecord, EvalResult

IMPORTED = "imported"
"""Load method of an engine that the tracker did not run; also the URI scheme of imported checkpoints."""


def is_imported(record: EvalRecord) -> bool:
    """Return whether a record was made by `tracker import`."""
    return record.engine is not None and record.engine.load_method == IMPORTED


def stands_for_import(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint only represents imported results: the tracker never had its files."""
    return checkpoint.uri.startswith(f"{IMPORTED}:")


def benchmarks_without_samples(records: Iterable[EvalRecord]) -> tuple[str, ...]:
    """Return the benchmarks with a result without samples in a run, in the order of their first record."""
    results = (o for record in records for o in record.results)
    return tuple(dict.fromkeys(o.benchmark for o in results if o.aggregate is not None))


def first_checkpoint(checkpoint: Checkpoint, records: Iterable[EvalRecord]) -> Checkpoint:
    """Return the lowest-step checkpoint of its run that was not imported, or `checkpoint` itself if it is lower."""
    known = (record.plan.checkpoint for record in records if not is_imported(record))
    return min((*known, checkpoint), key=lambda c: c.step)


def without_samples(record: EvalRecord) -> EvalRecord:
    """Return a record without the samples of its results."""
    outcomes = tuple(replace(o, samples=()) if isinstance(o, EvalResult) else o for o in record.outcomes)
    return replace(record, outcomes=outcomes)
