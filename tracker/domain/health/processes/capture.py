"""What is kept of a look at the processes: states and stacks of all ranks, equal ones once. Pure."""

from collections.abc import Sequence

from tracker.domain.health.processes.collectives import short_file
from tracker.domain.health.processes.hangs import Moment
from tracker.domain.health.processes.seen import Sample

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
