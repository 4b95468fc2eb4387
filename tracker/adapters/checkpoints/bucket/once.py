"""Pins one named checkpoint in a bucket, without watching."""

import threading
from dataclasses import replace
from pathlib import Path

from eval_jobs.errors import CheckpointIncomplete, CheckpointNotFound
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.bucket.client import Bucket
from tracker.adapters.checkpoints.bucket.fetch import Fetcher
from tracker.adapters.checkpoints.bucket.listing import Reader, at_prefix
from tracker.adapters.checkpoints.pins.hold import publish, refusal, remove_folder
from tracker.domain.checkpoints.buckets import demand_whole_weights
from tracker.domain.checkpoints.completeness import Complete, assess, stated_step
from tracker.domain.checkpoints.names import step_of


def pin_from_bucket(bucket: Bucket, *, run_id: str, pins_dir: Path, step: int | None = None) -> Checkpoint:
    """Download and pin the checkpoint whose files are directly below the bucket's prefix; `step` as in `pin_folder`.

    Raises:
        CheckpointNotFound: there are no files.
        CheckpointIncomplete, CheckpointUnreadable, CheckpointUnsafe: as for a folder.
        ConfigError, StoreUnavailable: the bucket cannot be read.
        DiskFull, StoreError: the pin cannot be written.
    """
    uri = bucket.location.uri
    name = uri.rpartition("/")[2]
    prefix = at_prefix(bucket.objects(), bucket.location, run_id=run_id, step=0)
    if not prefix.objects:
        raise CheckpointNotFound(
            f"no checkpoint in {uri}", hint="pass a checkpoint's prefix, such as s3://bucket/run/checkpoint-100"
        )
    listing = replace(Reader(bucket).listing(prefix), step=step_of(name))
    readiness = demand_whole_weights(listing.facts) or assess(listing)
    if not isinstance(readiness, Complete):
        raise refusal(uri, readiness)
    step = stated_step(listing, readiness) if step is None else step
    place = replace(prefix, step=step) if step is not None else replace(prefix, run_id=f"{run_id}/{name}")
    pin = Fetcher(bucket, pins_dir, threading.Event()).hold(place, readiness)
    if pin is None:
        raise CheckpointIncomplete(f"{uri} changed during the download", hint="retry after its upload has finished")
    try:
        return publish(replace(pin, by_hand=True))
    finally:
        remove_folder(Path(pin.folder))
