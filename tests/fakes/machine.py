"""What a machine says of a training, as the test sets it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from eval_jobs.records.gpu_health import GpuHealth
from tracker.domain.health.processes.leaks import Usage
from tracker.domain.health.processes.seen import ProcessId


@dataclass
class FakeMachine:
    """`tracker.ports.Machine` in memory."""

    messages: list[tuple[str, int | None]] = field(default_factory=list)
    """Messages of the kernel since the last call, each with the process that it names."""
    used: Usage = field(default_factory=Usage)
    found: tuple[GpuHealth, ...] = ()

    def kernel_lines(self, pids: Collection[int]) -> list[str]:
        messages, self.messages = self.messages, []
        return [text for text, pid in messages if pid is None or pid in pids]

    def usage(self, ids: Collection[ProcessId]) -> Usage:
        return self.used if ids else Usage()

    def gpus(self, pids: Collection[int]) -> tuple[GpuHealth, ...]:
        return self.found if pids else ()
