"""What is known of one process at one moment. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, kw_only=True, order=True)
class ProcessId:
    """A process of this machine: numbers are used again, with another start."""

    pid: int
    created_s: float
    """Seconds from the boot of the machine to its start: the time of day may be set."""


class ProcessState(StrEnum):
    """What the kernel says of a process."""

    RUNNING = "running"
    SLEEPING = "sleeping"
    BLOCKED = "blocked"
    """Uninterruptible sleep (D), such as in a call to a file server."""
    STOPPED = "stopped"
    ZOMBIE = "zombie"
    """Zombie (Z): it has ended, and its parent has not waited for it."""
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class SeenProcess:
    """What does not change while a process lives."""

    id: ProcessId
    parent: int
    """Process ID of the parent; 0: none."""
    name: str
    """Of the thread that began it, as `ps -o comm` prints it."""
    arguments: tuple[str, ...] = ()
    """Empty: not readable."""
    folder: str = ""
    """Working directory; empty: not readable."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment that `NAMES` lists."""
    outputs: tuple[str, ...] = ()
    """Files that its stdout and stderr are."""
    writes: tuple[str, ...] = ()
    """Other files that it holds open for writing, if it runs Python."""
    settings: tuple[str, ...] = ()
    """Paths that files in its arguments name."""
    script: tuple[str, ...] = ()
    """Paths that its Python script names."""

    network: str = ""
    """Its network namespace: addresses of another one, as of a container, are others. Empty: not readable."""

    @property
    def rank(self) -> int | None:
        """Number of its process among all of the job; None: no launcher has set it."""
        return self._number(RANK_NAMES, SLURM_RANK)

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the job; None: no launcher has set it."""
        return self._number(WORLD_NAMES, SLURM_WORLD)

    def _number(self, names: tuple[str, ...], of_slurm: str) -> int | None:
        for name in (*names, of_slurm) if self._is_slurm_task() else names:
            value = self.variables.get(name, "")
            if value.isdecimal():
                return int(value)
        return None

    def _is_slurm_task(self) -> bool:
        """Return whether srun started it as one of several: all processes of a batch script have SLURM_PROCID=0."""
        step, tasks = self.variables.get(SLURM_STEP, ""), self.variables.get(SLURM_WORLD, "")
        return step.isdecimal() and tasks.isdecimal() and int(tasks) > 1


RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Of torchrun and accelerate, Open MPI and MPICH: the first that is set decides, and then that of Slurm."""
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
SLURM_RANK, SLURM_WORLD, SLURM_STEP = "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"
JOB_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
RUN_NAME, SLURM_LABEL = "TRACKER_RUN", "SLURM_JOB_NAME"
NAMES = (
    *(*RANK_NAMES, SLURM_RANK, *WORLD_NAMES, SLURM_WORLD, SLURM_STEP),
    *(*JOB_NAMES, "MASTER_ADDR", "MASTER_PORT", RUN_NAME, SLURM_LABEL),
)
"""No other variable is read: they hold keys."""


@dataclass(frozen=True, kw_only=True)
class StackFrame:
    """One function on a stack."""

    function: str
    file: str
    """Path, shortened to what names the module."""
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One process in one moment."""

    state: ProcessState
    cpu_s: float = 0.0
    """Processor time of all its threads since its start."""
    moved_bytes: int | None = None
    """Bytes that it read and wrote since its start; None: not readable."""
    waits_in: str = ""
    """Function of the kernel in which it sleeps; empty: none, or not readable."""
    stack: tuple[StackFrame, ...] | None = None
    """Of its main thread, the innermost first; None: not readable."""
    no_stack: str = ""
    """Why there is none; empty: not known."""
