"""The engine that a plan asks for, by `ServeSpec.engine`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from eval_jobs.ports import Clock, Engine, Progress
from eval_jobs.serve.remote import RemoteEngine
from eval_jobs.serve.vllm import VllmEngine
from eval_jobs.types import Checkpoint, Endpoint, EngineKind, ServeSpec


class EngineByKind:
    """`eval_jobs.ports.Engine` that hands each checkpoint to the kind of engine its settings name."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        self._engines: dict[EngineKind, Engine] = {
            EngineKind.VLLM: VllmEngine(work_dir, clock),
            EngineKind.REMOTE: RemoteEngine(clock),
        }

    def serving(
        self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Progress
    ) -> AbstractContextManager[Endpoint]:
        """Serve through the engine that `spec.engine` names."""
        return self._engines[spec.engine].serving(checkpoint, spec, progress=progress)

    def close(self) -> None:
        """Close all engines."""
        for engine in self._engines.values():
            engine.close()
