"""Part of the composition root: the source of checkpoints, a folder, a bucket or a plugin."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from eval_jobs.errors import CheckpointNotFound, ConfigError
from eval_jobs.host.clock import SystemClock
from eval_jobs.host.paths import canonical
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.pins.store import FolderOfPins
from tracker.config import Config
from tracker.domain.checkpoints.buckets import SCHEME, parse_location
from tracker.ports import CheckpointSource

if TYPE_CHECKING:
    from tracker.adapters.checkpoints.bucket.client import Bucket


def open_source(config: Config, pins_dir: Path) -> CheckpointSource:
    """Return the source of the checkpoints of the watched run.

    Raises:
        ConfigError: the plugin cannot be opened, or a package for reading the bucket is not installed.
    """
    run, options = config.run, config.watch.to_options()
    program = run.to_program()
    if program is not None:
        from tracker.adapters.checkpoints.plugin_source import PluginSource

        return PluginSource(run.name, run.output_dir, pins_dir, program)
    if not run.is_bucket:
        from tracker.adapters.checkpoints.folder.source import FilesystemSource

        return FilesystemSource(run.name, Path(run.output_dir), pins_dir, options, SystemClock())
    bucket = _bucket(config, run.output_dir)
    from tracker.adapters.checkpoints.bucket.source import BucketSource

    return BucketSource(run.name, bucket, pins_dir, options, SystemClock())


def pin_at(config: Config, checkpoint: str, run_id: str, pins_dir: Path, *, step: int | None = None) -> Checkpoint:
    """Pin a checkpoint, a folder or s3://bucket/prefix, as part of a run.

    Raises:
        CheckpointError: it is not a complete checkpoint.
        ConfigError, StoreError: it cannot be read, or the pin cannot be written.
    """
    if not checkpoint.startswith(SCHEME):
        from tracker.adapters.checkpoints.folder.once import pin_folder

        options = config.watch.to_options()
        return pin_folder(Path(checkpoint), run_id=run_id, pins_dir=pins_dir, options=options, step=step)
    bucket = _bucket(config, checkpoint)
    from tracker.adapters.checkpoints.bucket.once import pin_from_bucket

    return pin_from_bucket(bucket, run_id=run_id, pins_dir=pins_dir, step=step)


def held_at(checkpoint: str, pins_dir: Path) -> Checkpoint | None:
    """Return the checkpoint of one of our pins, which may be all that rotation left; None if it is not a pin.

    Raises:
        CheckpointNotFound: its weights were deleted.
    """
    if checkpoint.startswith(SCHEME):
        return None
    folder, known = Path(canonical(checkpoint)), Path(canonical(str(pins_dir)))
    if not folder.is_relative_to(known):
        return None
    folder = pins_dir.absolute() / folder.relative_to(known)
    pins = FolderOfPins(pins_dir)
    if str(folder) in pins.given_up():
        raise CheckpointNotFound(
            f"the weights in {folder} were deleted to save space",
            hint="pass the trainer's own folder if it still exists; keep.pins sets how many pins are kept",
        )
    held = (pin.checkpoint for pin in pins.held())
    return next((found for found in held if Path(found.uri) == folder), None)


def pin_named(config: Config, checkpoint: str, run_id: str | None = None, *, step: int | None = None) -> Checkpoint:
    """Pin one checkpoint by its location: a folder, s3://bucket/prefix, or one of our pins.

    Args:
        config: of the project.
        checkpoint: its location.
        run_id: run that it belongs to; default: `run_id_of` it.
        step: training step; default: from its name or files.

    Raises:
        CheckpointError: it is not a complete checkpoint.
        ConfigError, StoreError: it cannot be read, or the pin cannot be written.
    """
    pins_dir = config.run.pins_dir
    held = held_at(checkpoint, pins_dir)
    return held or pin_at(config, checkpoint, run_id or run_id_of(config, checkpoint), pins_dir, step=step)


def run_id_of(config: Config, checkpoint: str) -> str:
    """Return the run id that watching assigns to a checkpoint."""
    is_bucket = checkpoint.startswith(SCHEME)
    parent = PurePosixPath(checkpoint).parent if is_bucket else PurePosixPath(canonical(str(Path(checkpoint).parent)))
    if parent.parent == PurePosixPath(canonical(config.run.output_dir)):
        return f"{config.run.name}/{parent.name}"
    return config.run.name


def _bucket(config: Config, uri: str) -> Bucket:
    try:
        from tracker.adapters.checkpoints.bucket.client import Bucket
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot read {uri}: Python package {error.name} is not installed",
            hint="install it: pip install 'checkpoint-tracker[s3]'",
        ) from error
    return Bucket(parse_location(uri), config.s3.to_access())
