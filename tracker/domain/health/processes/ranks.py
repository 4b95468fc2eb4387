"""What the samples of one look say of each rank. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracker.domain.health.processes.collectives import (
    collective_of,
    stack_key,
)
from tracker.domain.health.processes.seen import ProcessState, Sample, StackFrame


@dataclass(frozen=True, kw_only=True)
class Moment:
    """All processes of a training on this machine at one moment."""

    at_s: float
    ranks: Mapping[int, Sample]
    loaders: Mapping[int, tuple[Sample, ...]] = field(default_factory=dict)
    """Workers of the data loaders, by the rank that they work for."""


@dataclass(frozen=True, kw_only=True)
class SampledRank:
    """What the samples of one rank say together."""

    rank: int
    samples: tuple[Sample, ...]
    loaders: tuple[tuple[Sample, ...], ...]
    """Samples of each worker of its data loader."""
    cpu_share: float
    has_moved: bool

    @property
    def newest(self) -> Sample:
        """The last sample."""
        return self.samples[-1]

    @property
    def stack(self) -> tuple[StackFrame, ...]:
        """Its stack in the last sample; empty if none could be read."""
        return self.newest.stack or ()

    @property
    def collective(self) -> str:
        """The operation in which it waits for others; empty: none."""
        return collective_of(self.stack)

    @property
    def is_still(self) -> bool:
        """Whether it has a stack that is the same in all samples."""
        stacks = [sample.stack for sample in self.samples]
        if None in stacks:
            return False
        return len({stack_key(stack or ()) for stack in stacks}) == 1

    def always(self, state: ProcessState) -> bool:
        """Return whether it was in this state in all samples."""
        return all(sample.state is state for sample in self.samples)


def ranks_of(moments: Sequence[Moment]) -> list[SampledRank]:
    """Return the ranks of one look, ascending."""
    seconds = max(moments[-1].at_s - moments[0].at_s, 1e-3)
    numbers = sorted({rank for moment in moments for rank in moment.ranks})
    found = []
    for rank in numbers:
        samples = tuple(moment.ranks[rank] for moment in moments if rank in moment.ranks)
        workers = tuple(zip(*(moment.loaders.get(rank, ()) for moment in moments), strict=False))
        found.append(
            SampledRank(
                rank=rank,
                samples=samples,
                loaders=workers,
                cpu_share=(samples[-1].cpu_s - samples[0].cpu_s) / seconds,
                has_moved=has_moved(samples),
            )
        )
    return found


def has_moved(samples: Sequence[Sample]) -> bool:
    """Return whether a process read or wrote; what is not readable may have moved."""
    first, last = samples[0].moved_bytes, samples[-1].moved_bytes
    return first is None or last is None or first != last
