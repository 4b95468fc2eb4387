"""How a training ended whose processes are gone. Pure."""

from dataclasses import dataclass

from tracker.domain.health.processes.signs import TERMINAL, ProcessSign, process_trouble
from tracker.domain.records.display import count_text
from tracker.domain.records.training import RANK_KILLED, TroubleClass

_INTERRUPTED = frozenset((130, 143, -2, -15))
"""Exit codes of a program that was asked to end: a user's decision."""


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """What is known of the end."""

    last_step: int | None
    total_steps: int | None
    is_complete: bool | None
    """Whether all steps were done; None: unknown."""
    trouble: TroubleClass | None
    """Cause of the end in the logs, or else the open incident; None: neither."""
    memory_kills: int
    """Processes of its cgroups that the kernel killed for memory, and that not all ranks outlived for long."""
    exit_code: int | None
    """Of the command that `tracker guard` started; negative: the signal that ended it. None: unknown."""
    first_rank: int | None = None
    """Rank that ended before the others; None: unknown."""

    @property
    def is_successful(self) -> bool:
        """Whether the training did what it should."""
        return bool(self.is_complete) or self.exit_code == 0


def sign_of_end(ending: JobEnd) -> ProcessSign | None:
    """Return why a training ended; None: it finished, its log says why, a user ended it, or nothing is known."""
    trouble = ending.trouble
    if ending.is_successful:
        return None
    if trouble is None or not trouble.is_terminal:
        return _killed_for_memory(ending) or _unexplained(ending)
    if trouble.is_stop:
        return None
    return _killed_for_memory(ending) or (_first_death(ending) if trouble.is_consequence else None)


def word_of_end(ending: JobEnd, sign: ProcessSign | None) -> str:
    """Return how a training ended: finished, failed, cancelled, killed for memory, gone, or only ended."""
    if ending.is_successful:
        return "finished"
    trouble = _cause(ending, sign)
    if trouble is None or not trouble.is_terminal:
        return "cancelled" if ending.exit_code in _INTERRUPTED else "ended"
    if trouble.is_stop:
        return "cancelled"
    return trouble.name.replace("_", " ") if trouble.name in TERMINAL else "failed"


def _cause(ending: JobEnd, sign: ProcessSign | None) -> TroubleClass | None:
    """Return what ended a training: what its log names as a cause, or else what its processes show."""
    if sign is None:
        return ending.trouble
    if ending.trouble is None or not ending.trouble.is_terminal or ending.trouble.is_consequence:
        return sign.trouble
    return ending.trouble


def _killed_for_memory(ending: JobEnd) -> ProcessSign | None:
    if ending.memory_kills <= 0:
        return None
    text = f"the kernel killed {count_text(ending.memory_kills, 'task')} of its cgroup because memory ran out"
    hint = "give the job more memory, or lower the number of data loader workers"
    return ProcessSign(trouble=process_trouble("killed_for_memory", hint), text=text)


def _first_death(ending: JobEnd) -> ProcessSign | None:
    """Return which rank ended first, of which the logs of others tell; None: it is not known."""
    if ending.first_rank is None or ending.trouble is None:
        return None
    how = "was killed (SIGKILL)" if ending.trouble.name == RANK_KILLED else "ended before the others"
    text = f"rank {ending.first_rank} {how}, and no log says why"
    hint = "if no user killed it, memory ran out: search the kernel's messages (dmesg) for oom-kill"
    return ProcessSign(trouble=process_trouble("rank_died", hint), text=text, ranks=(ending.first_rank,))


def _unexplained(ending: JobEnd) -> ProcessSign | None:
    """Return what is known of an end of which no log says why."""
    code = ending.exit_code
    if code in _INTERRUPTED:
        return None
    if code is not None:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        hint = "see the last lines of its log"
        return ProcessSign(trouble=process_trouble("failed", hint), text=f"its command ended with {how}")
    if ending.is_complete is None:
        return None
    text = f"all processes ended at step {ending.last_step} of {ending.total_steps}, and no log says why"
    hint = "they may have been killed, or the machine restarted: look at the kernel's messages"
    return ProcessSign(trouble=process_trouble("gone", hint), text=text)
