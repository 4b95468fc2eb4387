"""vLLM as a process of our own: `resident.engine` with vLLM's way of starting and of taking in a checkpoint."""

from pathlib import Path

from eval_jobs.ports import Clock
from eval_jobs.serve.resident.cold import ColdStarts
from eval_jobs.serve.resident.engine import ResidentEngine
from eval_jobs.serve.resident.warm import load_into


class VllmEngine(ResidentEngine):
    """`eval_jobs.ports.Engine` on vLLM."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:
        """Begin with nothing running."""
        super().__init__(work_dir, clock, starts=ColdStarts(work_dir, clock), load_into=load_into)
