"""Pins one named checkpoint in a bucket, without watching."""

import threading
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import (
    CheckpointError,
    CheckpointIncomplete,
    CheckpointNotFound,
    CheckpointUnreadable,
    CheckpointUnsafe,
)
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.bucket.client import Bucket
from tracker.adapters.checkpoints.bucket.fetch import Fetcher
from tracker.adapters.checkpoints.bucket.listing import Reader, at_prefix
from tracker.adapters.checkpoints.pins.hold import publish, remove_folder
from tracker.domain.checkpoints.buckets import demand_whole_weights
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.listing import usual_step_of

_ERRORS: dict[str, type[CheckpointError]] = {
    error.code: error for error in (CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe)
}


def pin_from_bucket(bucket: Bucket, *, run_id: str, pins_dir: Path) -> Checkpoint:
    """Download and pin the checkpoint whose files are directly below the bucket's prefix.

    Raises:
        CheckpointNotFound: there are no files.
        CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe: as for a folder.
        ConfigError, StoreUnavailable: the bucket cannot be read.
        DiskFull, StoreError: the pin cannot be written.
    """
    uri = bucket.location.uri
    step = usual_step_of(uri.rpartition("/")[2])
    prefix = at_prefix(bucket.objects(), bucket.location, run_id=run_id, step=step or 0)
    if not prefix.objects:
        raise CheckpointNotFound(
            f"no checkpoint in {uri}", hint="pass a checkpoint's prefix, such as s3://bucket/run/checkpoint-100"
        )
    listing = replace(Reader(bucket).listing(prefix), step=step)
    readiness = demand_whole_weights(listing.facts) or assess(listing)
    if not isinstance(readiness, Complete):
        raise _ERRORS[readiness.code](f"cannot evaluate {uri}: {readiness.reason}", hint=readiness.hint)
    pin = Fetcher(bucket, pins_dir, threading.Event()).hold(replace(prefix, step=readiness.step), readiness)
    if pin is None:
        raise CheckpointIncomplete(f"{uri} changed during the download", hint="retry after its upload has finished")
    try:
        return publish(replace(pin, by_hand=True))
    finally:
        remove_folder(Path(pin.folder))
