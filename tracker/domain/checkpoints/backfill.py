"""Which checkpoints a backfill evaluates, in which order, and how long that takes. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from itertools import islice
from statistics import median

from eval_jobs.identity import suite_fingerprint
from eval_jobs.types import EvalRecord, Suite
from tracker.domain.records.imported import is_imported

_NEWEST_RECORDS = 10


class FillOrder(StrEnum):
    """Order in which existing checkpoints are evaluated."""

    OLDEST = "oldest"
    NEWEST = "newest"
    BISECT = "bisect"
    """The first and the last, then the middle of the widest gap: this shows the shape of the curve early."""


@dataclass(frozen=True, kw_only=True)
class StepFilter:
    """Which steps are evaluated."""

    every: int = 1
    """1: all steps; n: the first step and every n-th after it."""
    first: int | None = None
    last: int | None = None


def chosen_steps(steps: Iterable[int], choice: StepFilter) -> tuple[int, ...]:
    """Return the chosen steps, ascending."""
    within = (
        step
        for step in sorted(set(steps))
        if (choice.first is None or step >= choice.first) and (choice.last is None or step <= choice.last)
    )
    return tuple(within)[:: choice.every]


def evaluation_order(steps: Sequence[int], order: FillOrder) -> tuple[int, ...]:
    """Return all steps in evaluation order."""
    ascending = tuple(sorted(steps))
    if order is FillOrder.OLDEST:
        return ascending
    if order is FillOrder.NEWEST:
        return ascending[::-1]
    return tuple(_from_the_ends(ascending))


def time_left_s(
    records: Iterable[EvalRecord], *, suites: Iterable[Suite], checkpoints: float, workers: int
) -> float | None:
    """Return the estimated time for `checkpoints`, from the newest evaluations of `suites`; None: there are none."""
    wanted = {suite_fingerprint(suite) for suite in suites}
    # Those whose results are taken over took no time.
    asked = (r for r in records if r.engine is not None and r.finished_at > r.started_at and not is_imported(r))
    own = sorted(asked, key=lambda r: r.finished_at)
    alike = (r for r in reversed(own) if suite_fingerprint(r.plan.suite) in wanted)
    took = [(r.finished_at - r.started_at).total_seconds() for r in islice(alike, _NEWEST_RECORDS)]
    if took:
        return median(took) * checkpoints / max(1, workers)
    return None


def _from_the_ends(ascending: Sequence[int]) -> Iterator[int]:
    yield from ascending[:1]
    yield from ascending[1:][-1:]
    gaps = [(-len(ascending) + 1, 0)]
    while gaps and gaps[0][0] < -1:  # the widest first, and of equal ones the lowest
        width, low = heappop(gaps)
        half = -width // 2
        yield ascending[low + half]
        heappush(gaps, (-half, low))
        heappush(gaps, (width + half, low + half))
