"""A part of the composition root: where checkpoints come from, a folder or a bucket."""

from __future__ import annotations

import importlib
from pathlib import Path

from eval_jobs.errors import CheckpointNotFound, ConfigError
from eval_jobs.host.clock import SystemClock
from eval_jobs.types import Checkpoint
from tracker.config import Config
from tracker.domain.checkpoints.buckets import SCHEME, parse_location
from tracker.ports import CheckpointSource, Pins


def open_source(config: Config, pins_dir: Path) -> CheckpointSource:
    """Return what finds the checkpoints of the run that is watched.

    Raises:
        ConfigError: the bucket cannot be read here.
    """
    run, options = config.run, config.watch.to_options()
    program = run.to_program()
    if program is not None:
        plugin = importlib.import_module("tracker.adapters.checkpoints.plugin_source")
        other: CheckpointSource = plugin.PluginSource(run.name, run.output_dir, pins_dir, program)
        return other
    if not run.is_bucket:
        folders = importlib.import_module("tracker.adapters.checkpoints.folder.source")
        watched: CheckpointSource = folders.FilesystemSource(
            run.name, Path(run.output_dir), pins_dir, options, SystemClock()
        )
        return watched
    bucket = _bucket(config, run.output_dir)
    adapter = importlib.import_module("tracker.adapters.checkpoints.bucket.source")
    source: CheckpointSource = adapter.BucketSource(run.name, bucket, pins_dir, options, SystemClock())
    return source


def pin_at(config: Config, checkpoint: str, run_id: str, pins_dir: Path) -> Checkpoint:
    """Pin a checkpoint, a folder or s3://bucket/prefix, and count it to a run.

    Raises:
        CheckpointError: it is no complete checkpoint.
        ConfigError, StoreError: it cannot be read, or the pin cannot be written.
    """
    if not checkpoint.startswith(SCHEME):
        folders = importlib.import_module("tracker.adapters.checkpoints.folder.source")
        options = config.watch.to_options()
        found: Checkpoint = folders.pin_checkpoint(Path(checkpoint), run_id=run_id, pins_dir=pins_dir, options=options)
        return found
    bucket = _bucket(config, checkpoint)
    once = importlib.import_module("tracker.adapters.checkpoints.bucket.once")
    pinned: Checkpoint = once.pin_checkpoint(bucket, run_id=run_id, pins_dir=pins_dir)
    return pinned


def held_at(checkpoint: str, pins_dir: Path, pins: Pins) -> Checkpoint | None:
    """Return the checkpoint of one of our pins: that is all that rotation may have left of it.

    Raises:
        CheckpointNotFound: it was given up.
    """
    folder = Path(checkpoint).absolute()
    if checkpoint.startswith(SCHEME) or not folder.is_relative_to(pins_dir.absolute()):
        return None
    if str(folder) in pins.given_up():
        raise CheckpointNotFound(
            f"the weights in {folder} were given up to save space",
            hint="name the trainer's own folder, if it is still there; keep.pins says how many are kept",
        )
    held = (pin.checkpoint for pin in pins.held())
    return next((found for found in held if Path(found.uri) == folder), None)


# --- private


def _bucket(config: Config, uri: str) -> object:
    try:
        client = importlib.import_module("tracker.adapters.checkpoints.bucket.client")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{uri} cannot be read: the Python package {error.name} is not installed",
            hint="pip install 'checkpoint-tracker[s3]'",
        ) from error
    bucket: object = client.Bucket(parse_location(uri), config.s3.to_access())
    return bucket
