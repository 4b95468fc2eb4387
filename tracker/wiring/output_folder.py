"""What the folder that a run writes to says before a training begins. It may be on a file server that hangs."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracker.adapters.checkpoints.files.listing import places_in
from tracker.adapters.host.machine import read_volume
from tracker.adapters.trainer_files.documents import read_documents
from tracker.config import Config
from tracker.domain.readiness.training.facts import Volume


@dataclass(frozen=True, kw_only=True)
class Output:
    """The disk of an output folder and its newest checkpoint. None: not known."""

    volume: Volume | None = None
    newest: str = ""
    """Name of the newest checkpoint. Empty: there is none."""
    newest_bytes: int | None = None
    workers: int | None = None
    """Of each data loader, in the trainer's settings."""


def output_folder_of(config: Config | None) -> Path | None:
    """Return the output folder of the run, else the current folder; None: it is not on this machine."""
    if config is None:
        return Path.cwd()
    if "://" in config.run.output_dir:
        return None
    return Path(config.run.output_dir)


def read_output(config: Config | None) -> Output:
    """Return what the output folder says; of a current folder without settings, only the disk."""
    folder = output_folder_of(config)
    if folder is None:
        return Output()
    newest = None if config is None else _newest(config, folder)
    if newest is None:
        return Output(volume=read_volume(folder))
    return Output(
        volume=read_volume(folder), newest=newest.name, newest_bytes=_bytes_in(newest), workers=_workers(newest)
    )


def _newest(config: Config, folder: Path) -> Path | None:
    pattern, skip = config.watch.to_options().pattern, config.run.state_dir
    try:
        places = places_in(folder, run_name="", pattern=pattern, skip=skip)
    except OSError:  # it does not exist yet
        return None
    if places:
        return places[-1].path
    return None


def _workers(checkpoint: Path) -> int | None:
    for document in read_documents([checkpoint, checkpoint.parent]).values():
        found = document.get("dataloader_num_workers")
        if isinstance(found, int):
            return found
    return None


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in (folder, *folder.rglob("*")):
        with suppress(OSError):  # the trainer may delete it meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total
