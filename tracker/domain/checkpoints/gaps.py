"""Checkpoints that will not be evaluated, each once with the reason, until they become usable. Pure."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.errors import CheckpointError, CheckpointVanished
from eval_jobs.types import EvalRecord
from tracker.domain.checkpoints.listing import Site
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import missed_steps
from tracker.domain.records.types import Gap

ROTATION_HINT = "keep more checkpoints (save_total_limit) or save less often, and run the tracker during training"

UNFINISHED_HINT = "save this step again if you need it: the trainer deleted it before it was whole"


class Gaps:
    """The gaps of one output folder or bucket, and the steps from which further ones are inferred."""

    def __init__(self) -> None:
        self._gaps: dict[str, dict[tuple[str, int], Gap]] = {}
        """By URI, then by code and number of steps."""
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        """Per run: first and last steps of the gaps of several steps, ascending and apart from each other."""
        self._steps: dict[str, dict[int, int | None]] = {}
        """Per run: every step seen -> steps between two saves according to its trainer_state.json."""
        self._joined: dict[str, int] = {}
        """Per run: the first watched step; no gap is inferred up to it."""
        self._places: dict[str, Site] = {}
        self._is_first_look = True

    def found(self) -> tuple[Gap, ...]:
        """Return all gaps, by run and step."""
        gaps = (gap for of_uri in self._gaps.values() for gap in of_uri.values())
        return tuple(sorted(gaps, key=lambda g: (g.run_id, g.step, g.code)))

    def add(self, place: Site, error: CheckpointError, now: datetime) -> None:
        """Add a gap that an error explains."""
        self._add(place, code=error.code, message=error.message, hint=error.hint, now=now)

    def add_unusable(self, place: Site, readiness: NotYet | Rejected, now: datetime) -> None:
        """Add a folder that stays unusable."""
        self._add(place, code=readiness.code, message=readiness.reason, hint=readiness.hint, now=now)

    def add_vanished(self, place: Site, message: str, now: datetime, *, hint: str = ROTATION_HINT) -> None:
        """Add a folder that was deleted, unless it alone has another gap already."""
        is_series = isinstance(place, _Missed) and len(place.steps) > 1
        if is_series or not self._gaps.get(place.uri):
            self._add(place, code=CheckpointVanished.code, message=message, hint=hint, now=now)

    def add_missed(self, now: datetime) -> None:
        """Add the steps that the trainer must have saved and deleted between two scans."""
        for run_id, known in self._steps.items():
            if self._is_first_look:
                self._joined.setdefault(run_id, max(known))
            for steps in missed_steps(known):
                # With both ends known, the steps between them are not missed a second time.
                known |= {steps[0]: None, steps[-1]: None}
                if steps[0] > self._joined[run_id] and not self._is_noted(run_id, steps[0]):
                    uri = self._places[run_id].uri.rstrip("0123456789") + str(steps[0])
                    place = _Missed(run_id=run_id, step=steps[0], uri=uri, steps=steps)
                    self.add_vanished(place, _missed_text(steps), now)
        self._is_first_look = False

    def remember_step(self, place: Site, save_every: int | None, *, was_watched: bool = False) -> None:
        """Record that a step exists; `was_watched`: an earlier process watched this run from this step on or before."""
        known = self._steps.setdefault(place.run_id, {})
        known[place.step] = save_every or known.get(place.step)
        self._places[place.run_id] = place
        if was_watched:
            self._joined[place.run_id] = min(place.step, self._joined.get(place.run_id, place.step))
        elif not self._is_first_look:
            self._joined.setdefault(place.run_id, place.step)

    def has(self, uri: str) -> bool:
        """Return whether a folder has a gap."""
        return bool(self._gaps.get(uri))

    def forget(self, uri: str) -> None:
        """Remove the gaps of a folder, because it has become a checkpoint; others may be missing after it."""
        of_uri = self._gaps.pop(uri, {})
        self._gaps[uri] = {key: gap for key, gap in of_uri.items() if gap.last_step is not None}

    def _is_noted(self, run_id: str, step: int) -> bool:
        """Return whether a gap of several steps has this one: another of them was saved after all."""
        ranges = self._ranges.get(run_id, [])
        before = bisect_right(ranges, step, key=lambda ends: ends[0])
        return before > 0 and step <= ranges[before - 1][1]

    def _add(self, place: Site, *, code: str, message: str, hint: str, now: datetime) -> None:
        steps = place.steps if isinstance(place, _Missed) else range(place.step, place.step + 1)
        of_uri = self._gaps.setdefault(place.uri, {})
        if (code, len(steps)) in of_uri:
            return
        gap = Gap(
            run_id=place.run_id,
            step=place.step,
            source_uri=place.uri,
            code=code,
            message=message,
            hint=hint,
            seen_at=now,
            is_inferred=isinstance(place, _Missed),
        )
        if len(steps) > 1:
            insort(self._ranges.setdefault(place.run_id, []), (steps[0], steps[-1]))
        of_uri[code, len(steps)] = _part_of(gap, steps)


def without(gap: Gap, steps: Sequence[int], others: Iterable[range] = ()) -> Iterator[Gap]:
    """Yield what is left of a gap without some `steps`, ascending, and without all between the ends of the `others`."""
    left = gap.steps
    inside = steps[bisect_left(steps, left[0]) : bisect_right(steps, left[-1])]
    for other in sorted([*others, *(range(step, step + 1) for step in inside)], key=lambda other: other[0]):
        low, high = bisect_left(left, other[0]), bisect_right(left, other[-1])
        if 0 < low < high:
            yield _part_of(gap, left[:low])
        if low < high:
            left = left[high:]
    if left:
        yield _part_of(gap, left)


def _part_of(gap: Gap, steps: range) -> Gap:
    if steps == gap.steps:
        return gap
    last_step = steps[-1] if len(steps) > 1 else None
    return replace(gap, step=steps[0], last_step=last_step, count=len(steps), message=_missed_text(steps))


def _missed_text(steps: range) -> str:
    if len(steps) == 1:
        return "it was expected from the save interval but never seen"
    which = f"{len(steps):,} checkpoints, steps {steps[0]} to {steps[-1]},"
    return f"{which} were expected from the save interval but never seen"


def unsettled(found: Iterable[Gap], known: Iterable[Gap], records: Iterable[EvalRecord]) -> Iterator[Gap]:
    """Yield the gaps that are valid: not inferred for a step with other data, and not evaluated after all.

    All are of one run: `found` by a source, `known` in the store, which may be the same.
    """
    codes: dict[int, dict[str, Gap]] = {}
    for gap in known:
        codes.setdefault(gap.step, {})[gap.code] = gap
    evaluated = {r.plan.checkpoint.step: r.finished_at for r in sorted(records, key=lambda r: r.finished_at)}
    settled = sorted(evaluated.keys() | codes)
    ranges = [gap for of_step in codes.values() for gap in of_step.values() if gap.last_step is not None]
    for gap in found:
        before, finished_at = codes.get(gap.step, {}), evaluated.get(gap.step)
        if _stands(gap, before, finished_at):
            yield from _news_of(gap, before.get(gap.code), settled, ranges)


def _news_of(gap: Gap, stored: Gap | None, settled: Sequence[int], ranges: Iterable[Gap]) -> Iterator[Gap]:
    """Yield an inferred gap without the steps of which something is known, unless it is stored as it is."""
    if not gap.is_inferred or (stored is not None and stored.last_step == gap.last_step):
        yield gap
    else:
        yield from without(gap, settled, (one.steps for one in ranges))


def _stands(gap: Gap, before: Mapping[str, Gap], finished_at: datetime | None) -> bool:
    """Return whether a gap is valid, given the stored gaps of its step and the end of its evaluation."""
    if gap.is_inferred and gap.count == 1 and (finished_at is not None or before.keys() - {gap.code}):
        return False
    earlier = before.get(gap.code)
    return earlier is None or finished_at is None or finished_at <= earlier.seen_at


@dataclass(frozen=True, kw_only=True)
class _Missed:
    run_id: str
    step: int
    uri: str
    steps: range
