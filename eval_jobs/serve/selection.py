"""Selects the engine for a plan by `ServeSpec.engine`."""

from contextlib import AbstractContextManager
from pathlib import Path

from eval_jobs.ports import Clock, Engine, Note
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.serve.sglang.engine import SglangEngine
from eval_jobs.spending import known_sum
from eval_jobs.types import Checkpoint, Endpoint, EngineKind, ServeSpec


class EngineByKind:
    """`eval_jobs.ports.Engine` that delegates each checkpoint to the engine that its settings name."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        self._clock = clock
        self._work_dir = work_dir
        self._engines: dict[EngineKind | str, Engine] = {
            EngineKind.VLLM: VllmEngine(work_dir, clock),
            EngineKind.SGLANG: SglangEngine(work_dir, clock),
        }

    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> AbstractContextManager[Endpoint]:
        """Serve through the engine that `spec.engine` names; stop the others, because two may not fit in memory."""
        wanted = spec.engine if spec.program is None else spec.program.name
        for kind, engine in self._engines.items():
            if kind != wanted:
                engine.close()
        if wanted not in self._engines:
            self._engines[wanted] = self._opened(wanted)
        return self._engines[wanted].serving(checkpoint, spec, progress=progress)

    def rest(self) -> None:
        """Call `rest` of every engine."""
        for engine in self._engines.values():
            engine.rest()

    def used_cpu_s(self) -> float | None:
        """Return the CPU time of all engines in seconds, None if none reports it."""
        return known_sum(engine.used_cpu_s() for engine in self._engines.values())

    def close(self) -> None:
        """Close all engines."""
        for engine in self._engines.values():
            engine.close()

    def _opened(self, wanted: EngineKind | str) -> Engine:
        if wanted is EngineKind.REMOTE:
            # Imported on demand: its client library takes 1 s and 25 MB, and workers with a local engine need neither.
            from eval_jobs.serve.remote import RemoteEngine

            return RemoteEngine(self._clock)
        from eval_jobs.serve.plugin_engine import PluginEngine

        folder = self._work_dir / "plugins" / "engines" / wanted
        return PluginEngine(str(wanted), folder, self._clock)
