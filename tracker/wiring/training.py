"""Part of the composition root: what can be known before a training begins, as findings of `tracker doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_jobs.errors import ConfigError, TrackerError
from eval_jobs.host.bounded.answers import in_thread
from tracker.adapters.checkpoints.files.listing import places_in
from tracker.adapters.checkpoints.files.model_shape import read_shape
from tracker.adapters.host.cgroups import cores
from tracker.adapters.host.machine import ROOT, read_host, read_memory, read_network, read_volume
from tracker.adapters.host.training_gpus import training_gpus
from tracker.adapters.trainer_files.documents import read_documents
from tracker.config import Config
from tracker.domain.readiness.finding import Finding, finding_of, of_training, ok, warning
from tracker.domain.readiness.training import limits
from tracker.domain.readiness.training import memory as estimates
from tracker.domain.readiness.training.facts import TrainingGpus, Volume
from tracker.domain.readiness.training.gpus import training_gpu_findings
from tracker.domain.readiness.training.memory import MemoryRoom, ModelShape, Offload, Setup, Zero

READ_S = 2.0
"""A file server and a driver that do not respond must not delay the start of a training."""
MOUNT_HINT = "check the file server that /proc/mounts names for it, and the network"


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """What is known about the training."""

    model: Path | None = None
    gpus: int | None = None
    zero: Zero | None = None
    offload: Offload | None = None
    workers: int | None = None
    """Of the data loaders of a rank."""

    def setups(self) -> tuple[Setup, ...]:
        """Return the setups that are asked for; all of them if none is.

        Raises:
            ConfigError: there is none, or no model.
        """
        if self.model is None and (self.zero is not None or self.offload is not None):
            raise ConfigError("--zero and --offload estimate the memory of a model", hint="add --model FOLDER")
        found = estimates.setups(self.zero, self.offload)
        if not found:
            hint = "use --zero 3 with --offload all, and at least --zero 1 with --offload optimizer"
            raise ConfigError(f"deepspeed has no --offload {self.offload} with --zero {self.zero}", hint=hint)
        return found


def examine_training(plan: PlannedTraining, config: Config | None, root: Path = ROOT) -> tuple[Finding, ...]:
    """Return all findings about a training here, within seconds; nothing is started or written.

    Raises:
        ConfigError: the plan contradicts itself.
    """
    return of_training(_findings(plan, plan.setups(), config, root))


def _findings(plan: PlannedTraining, chosen: tuple[Setup, ...], config: Config | None, root: Path) -> Iterator[Finding]:
    gpus, output, shape = _read(config, plan.model)
    host, memory = read_host(root), read_memory(root)
    ranks = plan.gpus or len(gpus.gpus) or 1
    yield from limits.limit_findings(host)
    yield limits.shared_memory_finding(read_volume(root / "dev/shm"), host)
    yield from limits.memory_findings(memory, host)
    yield from limits.network_findings(read_network(root))
    yield from training_gpu_findings(gpus, plan.gpus, host)
    if plan.workers is not None:
        yield limits.workers_finding(plan.workers, ranks, cores(root))
    elif output is not None and output.workers is not None:
        yield limits.workers_finding(output.workers, ranks, cores(root), ", as in the newest checkpoint,")
    if isinstance(shape, Finding):
        yield shape
    elif shape is not None:
        room = MemoryRoom(gpus=ranks, gpu_bytes=_smallest(gpus), memory=memory, host=host)
        yield from estimates.memory_need_findings(shape, chosen, room)
    yield _disk(config, shape if isinstance(shape, ModelShape) else None, output)


def _read(config: Config | None, model: Path | None) -> tuple[TrainingGpus, Output | None, ModelShape | Finding | None]:
    """Return the GPUs, the output folder and the model, of which each may not respond.

    None: the folder does not, or there is no model. A finding says why the model was not read.
    """
    of_gpus = in_thread("GPUs", training_gpus)
    of_output = in_thread("output folder", lambda: read_output(config))
    of_model = in_thread("model", lambda: _shape(model))
    reading: list[Future[Any]] = [of_gpus, of_output, of_model]
    wait(reading, timeout=READ_S)
    gpus = of_gpus.result() if of_gpus.done() else TrainingGpus(is_silent=True)
    output = of_output.result() if of_output.done() else None
    silent = warning("model", f"not known: {model} does not respond", MOUNT_HINT)
    return gpus, output, of_model.result() if of_model.done() else silent


def _shape(model: Path | None) -> ModelShape | Finding | None:
    if model is None:
        return None
    try:
        return read_shape(model)
    except TrackerError as failure:
        return finding_of("model", failure)


def _smallest(gpus: TrainingGpus) -> int | None:
    return min((gpu.memory_bytes for gpu in gpus.gpus if gpu.memory_bytes is not None), default=None)


def _disk(config: Config | None, shape: ModelShape | None, output: Output | None) -> Finding:
    """Return the finding about the disk that checkpoints are written to: of the run, else of the current folder."""
    folder = output_folder_of(config)
    if config is not None and folder is None:
        return ok(limits.DISK, f"not known: the run writes to {config.run.output_dir}")
    if output is None:
        return warning(limits.DISK, f"not known: {folder} does not respond", MOUNT_HINT)
    if output.volume is None:
        return ok(limits.DISK, f"not known: {folder} cannot be read")
    if output.newest_bytes is not None:
        return limits.checkpoint_disk_finding(output.volume, output.newest_bytes, output.newest)
    if shape is not None:
        return limits.checkpoint_disk_finding(output.volume, estimates.CHECKPOINT_BYTES * shape.parameters, "")
    return limits.checkpoint_disk_finding(output.volume, None, "")


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
