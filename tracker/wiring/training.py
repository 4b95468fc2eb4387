"""Part of the composition root: what can be known before a training begins, as findings of `tracker doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.errors import ConfigError, TrackerError
from tracker.adapters.checkpoints.files.listing import places_in
from tracker.adapters.checkpoints.files.model_shape import read_shape
from tracker.adapters.host.cgroups import cores
from tracker.adapters.host.machine import ROOT, read_host, read_memory, read_network, read_volume
from tracker.adapters.host.training_gpus import training_gpus
from tracker.adapters.trainer_files.documents import read_documents
from tracker.config import Config
from tracker.domain.readiness.finding import Finding, finding_of, of_training, ok
from tracker.domain.readiness.training import limits
from tracker.domain.readiness.training import memory as estimates
from tracker.domain.readiness.training.facts import TrainingGpus
from tracker.domain.readiness.training.gpus import training_gpu_findings
from tracker.domain.readiness.training.memory import MemoryRoom, ModelShape, Offload, Setup, Zero


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """What is known about the training."""

    model: Path | None = None
    gpus: int | None = None
    zero: Zero | None = None
    offload: Offload | None = None

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
    host, memory, gpus = read_host(root), read_memory(root), training_gpus()
    ranks, newest = plan.gpus or len(gpus.gpus) or 1, _newest(config)
    yield from limits.limit_findings(host)
    yield limits.shared_memory_finding(read_volume(root / "dev/shm"), host)
    yield from limits.memory_findings(memory, host)
    yield from limits.network_findings(read_network(root))
    yield from training_gpu_findings(gpus, plan.gpus, host)
    workers = None if newest is None else _workers(newest)
    if workers is not None:
        yield limits.workers_finding(workers, ranks, cores(root))
    shape: ModelShape | None = None
    if plan.model is not None:
        try:
            shape = read_shape(plan.model)
        except TrackerError as failure:
            yield finding_of("model", failure)
        else:
            room = MemoryRoom(gpus=ranks, gpu_bytes=_smallest(gpus), memory=memory, host=host)
            yield from estimates.memory_need_findings(shape, chosen, room)
    yield _disk(config, shape, newest)


def _smallest(gpus: TrainingGpus) -> int | None:
    return min((gpu.memory_bytes for gpu in gpus.gpus if gpu.memory_bytes is not None), default=None)


def _disk(config: Config | None, shape: ModelShape | None, newest: Path | None) -> Finding:
    """Return the finding about the disk that checkpoints are written to: of the run, else of the current folder."""
    if config is not None and "://" in config.run.output_dir:
        return ok(limits.DISK, f"not known: the run writes to {config.run.output_dir}")
    folder = Path.cwd() if config is None else Path(config.run.output_dir)
    volume = read_volume(folder)
    if volume is None:
        return ok(limits.DISK, f"not known: {folder} cannot be read")
    if newest is not None:
        return limits.checkpoint_disk_finding(volume, _bytes_in(newest), newest.name)
    if shape is not None:
        return limits.checkpoint_disk_finding(volume, estimates.CHECKPOINT_BYTES * shape.parameters, "")
    return limits.checkpoint_disk_finding(volume, None, "")


def _newest(config: Config | None) -> Path | None:
    """Return the newest checkpoint of the run on this machine."""
    if config is None or "://" in config.run.output_dir:
        return None
    pattern, skip = config.watch.to_options().pattern, config.run.state_dir
    try:
        places = places_in(Path(config.run.output_dir), run_name="", pattern=pattern, skip=skip)
    except OSError:  # it does not exist yet
        return None
    if places:
        return places[-1].path
    return None


def _workers(checkpoint: Path) -> int | None:
    """Return the workers of each data loader in the trainer's settings; None: not known."""
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
