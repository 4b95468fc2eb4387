"""vLLM as a local process: `resident.engine` with vLLM's way of starting and of loading a checkpoint."""

from pathlib import Path

from eval_jobs.ports import Clock
from eval_jobs.serve.resident.cold import ColdStarts
from eval_jobs.serve.resident.engine import ResidentEngine
from eval_jobs.serve.resident.warm import load_into


class VllmEngine(ResidentEngine):
    """`eval_jobs.ports.Engine` for vLLM."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        super().__init__(work_dir, clock, starts=ColdStarts(work_dir, clock), load_into=load_into)
