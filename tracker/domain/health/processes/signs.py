"""What processes show, as trouble of a training. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tracker.domain.health.gpus import GpuFinding
from tracker.domain.health.processes.collectives import short_file
from tracker.domain.health.processes.hangs import Hang, HangName
from tracker.domain.health.processes.leaks import REPORT_H, SHOW_H, Trend
from tracker.domain.health.processes.pace import JobPace
from tracker.domain.health.processes.ranks import Moment
from tracker.domain.health.processes.seen import Sample
from tracker.domain.records.display import duration_text
from tracker.domain.records.training import (
    Severity,
    TrainingIncident,
    TroubleClass,
    TroubleLine,
    TroubleSource,
    incident_id,
)

_HANGS = "The training hangs"
_FIRST_ORDER = 1_000
"""After all rules for lines: an error in the log explains a dead process."""
TITLES = {
    **dict.fromkeys(map(str, HangName), _HANGS),
    "killed_for_memory": "The kernel ended the training: memory ran out",
    "rank_died": "A training process died",
    "failed": "The training failed",
    "gone": "All processes of the training ended",
    "memory_leak": "Memory of the training grows to its limit",
    "gpu_memory_leak": "Memory of a GPU grows to its limit",
    "shared_memory_leak": "Shared memory grows to its limit",
    "descriptor_leak": "Open files of the training grow to their limit",
    "gpu_lost": "A GPU is lost",
    "gpu_memory_errors": "A GPU has uncorrected memory errors",
    "gpu_too_hot": "A GPU is too hot",
    "gpu_slowed": "A GPU is slowed down",
}
"""Classes of what processes show, most telling first."""
TERMINAL = frozenset(("killed_for_memory", "rank_died", "failed", "gone"))
_LEAKS = {
    "gpu_memory_leak": ("GPU memory", 2**30, "GiB", "look for tensors that are kept from step to step"),
    "shared_memory_leak": ("shared memory", 2**30, "GiB", "look for files that killed data loaders left"),
    "memory_leak": ("memory", 2**30, "GiB", "look for tensors and lists that are kept from step to step: see memray"),
    "descriptor_leak": ("open files", 1, "", "look for files, sockets and processes that are never closed"),
}


@dataclass(frozen=True, kw_only=True)
class ProcessSign:
    """Trouble that processes show."""

    trouble: TroubleClass
    text: str
    ranks: tuple[int, ...] = ()
    capture: str = ""
    """States and stacks of all ranks, of bounded length."""
    is_proven: bool = True
    """As `Hang.is_proven`."""


def process_trouble(name: str, hint: str, severity: Severity = Severity.ALERT) -> TroubleClass:
    """Return a class of trouble by its name in `TITLES`."""
    return TroubleClass(
        name=name,
        severity=severity,
        title=TITLES[name],
        source=_source_of(name),
        is_terminal=name in TERMINAL,
        hint=hint,
        order=_FIRST_ORDER + list(TITLES).index(name),
    )


def sign_of_hang(hang: Hang, pace: JobPace, moments: Sequence[Moment], where: str, more: str) -> ProcessSign:
    """Return why a training makes no progress, with how long it has made none.

    `where`: machine and number of these ranks, if the training has others elsewhere; else empty. `more`: what else is
    kept of the look, such as a table of its GPUs.
    """
    quiet = f"no progress for {duration_text(pace.quiet_s(moments[-1].at_s))}"
    if pace.usual_s:
        quiet += f" (it usually logs steps every {duration_text(pace.usual_s)})"
    return ProcessSign(
        trouble=process_trouble(hang.name, hang.hint),
        text=f"{f'on {where}: ' if where else ''}{hang.text}; {quiet}",
        ranks=hang.ranks,
        capture="\n\n".join(filter(None, (capture_of(moments), more))),
        is_proven=hang.is_proven,
    )


def sign_of_leak(name: str, trend: Trend, value: float, limit: float) -> ProcessSign | None:
    """Return the trouble of a number that grows to its limit: an alert within a day, shown within a week."""
    hours = trend.hours_to(limit)
    if hours is None or hours > SHOW_H:
        return None
    what, unit, suffix, hint = _LEAKS[name]
    now, most = f"{value / unit:,.0f} {suffix}".strip(), f"{limit / unit:,.0f} {suffix}".strip()
    severity = Severity.ALERT if hours <= REPORT_H else Severity.SHOWN
    text = f"{what}: {now} of {most}, which it reaches in {duration_text(hours * 3600)}"
    return ProcessSign(trouble=process_trouble(name, hint, severity), text=text)


def incident_of_sign(sign: ProcessSign, place: tuple[str, str], step: int | None, at: datetime) -> TrainingIncident:
    """Return a sign as an incident of its own, which no line joins; `place` is its run and machine."""
    run_id, host = place
    cause = TroubleLine(trouble=sign.trouble, stream="", number=0, text=sign.text, step=step, seen_at=at)
    return TrainingIncident(
        id=incident_id(run_id, sign.trouble.name, sign.text, at.isoformat(), *filter(None, [host])),
        run_id=run_id,
        cause=cause,
        evidence=(cause,),
        lines=0,
        seen_at=at,
        last_seen_at=at,
        last_step=step,
        hint=sign.trouble.hint,
    )


def sign_of_gpu(finding: GpuFinding) -> ProcessSign:
    """Return what is wrong with a GPU."""
    return ProcessSign(trouble=process_trouble(finding.name, finding.hint), text=finding.sentence)


def _source_of(name: str) -> TroubleSource:
    if name in _LEAKS:
        return TroubleSource.RESOURCE
    return TroubleSource.HARDWARE if name.startswith("gpu_") else TroubleSource.PROCESS


MAX_FRAMES = 25
MAX_CHARS = 40_000


def capture_of(moments: Sequence[Moment]) -> str:
    """Return the newest sample of all ranks and of the workers of their data loaders, as text."""
    newest, first = moments[-1], moments[0]
    seconds = max(newest.at_s - first.at_s, 1e-3)
    table = ["rank  state     core   bytes moved   waits in"]
    by_stack: dict[str, list[str]] = {}
    for rank, sample in sorted(newest.ranks.items()):
        before = first.ranks.get(rank, sample)
        table.append(_row(str(rank), before, sample, seconds))
        by_stack.setdefault(_stack_text(sample), []).append(f"rank {rank}")
        for number, worker in enumerate(newest.loaders.get(rank, ())):
            by_stack.setdefault(_stack_text(worker), []).append(f"data loader worker {number} of rank {rank}")
    stacks = [f"{', '.join(names)}:\n{stack}" for stack, names in by_stack.items()]
    return "\n\n".join(["\n".join(table), *stacks])[:MAX_CHARS]


def _row(name: str, before: Sample, sample: Sample, seconds: float) -> str:
    share = (sample.cpu_s - before.cpu_s) / seconds
    moved = "?"
    if sample.moved_bytes is not None and before.moved_bytes is not None:
        moved = str(sample.moved_bytes - before.moved_bytes)
    return f"{name:<5} {sample.state:<9} {share:>4.0%} {moved:>13}   {sample.waits_in or '-'}"


def _stack_text(sample: Sample) -> str:
    if sample.stack is None:
        return ": ".join(filter(None, ("  no stack could be read", sample.no_stack)))
    frames = [f"  {frame.function} ({short_file(frame.file)}:{frame.line})" for frame in sample.stack[:MAX_FRAMES]]
    return "\n".join(frames) or "  no Python frame"
