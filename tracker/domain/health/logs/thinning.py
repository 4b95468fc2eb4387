"""Which of the logged numbers become points of training curves. Pure.

MLflow draws 320 points of a curve and keeps each one for ever, so long curves are thinned: every step up to
`EVERY_STEP`, then one of every 2nd, 4th, 8th ... step, which is at most 2,000 points up to step 33 million.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from tracker.domain.health.logs.curves import NO_CURVES, PREFIX, SPELLINGS
from tracker.domain.records.metric_keys import metric_key
from tracker.domain.records.types import CurvePoint

EVERY_STEP = 1024
MAX_KEYS = 100
"""Curves of a run: a line of text may look like numbers with names, another name in each line."""

_POINTS_A_DOUBLING = ((14, 7), (20, 6), (64, 4))
"""Up to which power of two of the step, and the logarithm of the points that are kept between two powers."""


def thinned_step(step: int) -> int:
    """Return the first step of those of which one is kept."""
    if step < EVERY_STEP:
        return step
    power, kept_bits = step.bit_length() - 1, 0
    for up_to, bits in _POINTS_A_DOUBLING:
        if power < up_to:
            kept_bits = bits
            break
    shift = power - kept_bits
    return step >> shift << shift


def thinned_curves(points: Iterable[CurvePoint]) -> tuple[CurvePoint, ...]:
    """Return the points to keep of whole curves: the first of each group of steps, and the newest of each curve."""
    last: dict[str, int] = {}
    newest: dict[str, CurvePoint] = {}
    kept: list[CurvePoint] = []
    for point in points:
        newest[point.key] = point
        before = last.get(point.key)
        if before is None or thinned_step(before) != thinned_step(point.step):
            kept.append(point)
            last[point.key] = point.step
    kept += (point for point in newest.values() if point.step != last[point.key])
    return tuple(sorted(kept, key=lambda point: (point.step, point.key)))


def not_among(points: Iterable[CurvePoint], known: Iterable[CurvePoint], *, rounding: float) -> list[CurvePoint]:
    """Return the points that are not known; one that differs only by `rounding`, relatively, is the same point."""
    values: dict[tuple[str, int], list[float]] = {}
    for point in known:
        values.setdefault((point.key, point.step), []).append(point.value)
    new = []
    for point in points:
        of_step = values.setdefault((point.key, point.step), [])
        if not any(math.isclose(point.value, value, rel_tol=rounding) for value in of_step):
            of_step.append(point.value)
            new.append(point)
    return new


def continuing(saved: Iterable[CurvePoint], known: Iterable[CurvePoint]) -> list[CurvePoint]:
    """Return the points that a checkpoint adds to those that were saved with others, whose order may be any.

    Thinned curves of an older checkpoint have points in between that the newer one lacks. They are left out, as a point
    of an earlier step begins a branch. It is one if a known step has another value.
    """
    steps: dict[str, set[int]] = {}
    for point in (known := tuple(known)):
        steps.setdefault(point.key, set()).add(point.step)
    new = not_among(saved, known, rounding=0.0)
    branching = {point.key for point in new if point.step in steps.get(point.key, ())}
    added = []
    for point in new:
        if point.key in branching or point.step > max(steps.get(point.key, ()), default=-1):
            added.append(point)
    return added


def joined_curves(
    logged: Iterable[CurvePoint], stated: Iterable[CurvePoint], *, up_to_step: int | None = None
) -> tuple[CurvePoint, ...]:
    """Return the curves of a run from its logs and from what the trainer saved, which is exact, ordered by step.

    Both are in the order in which they were stored.
    """
    points = {(point.key, point.step): point for point in (*newest_branch(logged), *newest_branch(stated))}
    if up_to_step is not None:
        points = {place: point for place, point in points.items() if point.step <= up_to_step}
    return tuple(sorted(points.values(), key=lambda point: (point.step, point.key)))


def newest_branch(points: Iterable[CurvePoint]) -> tuple[CurvePoint, ...]:
    """Return the points that training did not leave when it went back, ordered by step.

    `points` are in the order in which they were logged: one of an earlier step replaces all from there on.
    """
    by_key: dict[str, list[CurvePoint]] = {}
    for point in points:
        curve = by_key.setdefault(point.key, [])
        while curve and curve[-1].step >= point.step:
            curve.pop()
        curve.append(point)
    kept = [point for curve in by_key.values() for point in curve]
    return tuple(sorted(kept, key=lambda point: (point.step, point.key)))


@lru_cache(maxsize=1_024)
def _key_of(name: str) -> str:
    """Return the key of the curve of a printed name; empty: it is none."""
    name = name.removeprefix(PREFIX)  # as TensorBoard's tags are named
    return "" if name in NO_CURVES else PREFIX + metric_key(SPELLINGS.get(name, name))


@dataclass(kw_only=True)
class CurveThinner:
    """The curves of one run while they grow, from all its logs: the first log with a point of a step decides."""

    newest: dict[str, int] = field(default_factory=dict)
    """Last step of each key."""
    kept: dict[str, int] = field(default_factory=dict)
    """Last step of each key that was kept."""
    held_values: dict[str, float] = field(default_factory=dict)
    """Value at the last step of each key that was not kept."""

    def take(self, step: int, values: Mapping[str, float]) -> list[CurvePoint]:
        """Return the points of one row that are kept."""
        points = []
        group = thinned_step(step)
        for name, value in values.items():
            key = _key_of(name)
            if not key or not math.isfinite(value) or not self._is_next(key, step):
                continue
            self.newest[key] = step
            if self.kept.get(key, -1) >= group:
                self.held_values[key] = value
                continue
            self.kept[key] = step
            self.held_values.pop(key, None)
            points.append(CurvePoint(key=key, step=step, value=value))
        return points

    def go_back(self, step: int) -> None:
        """Begin a branch at `step`: what follows is new although its steps are not."""
        for known in (self.newest, self.kept):
            for key, last in known.items():
                known[key] = min(last, step - 1)
        self.held_values.clear()

    def released(self) -> list[CurvePoint]:
        """Return the newest points that were not kept, because nothing follows them for now."""
        points = [CurvePoint(key=key, step=self.newest[key], value=value) for key, value in self.held_values.items()]
        self.held_values.clear()
        for point in points:
            self.kept[point.key] = point.step
        return points

    def _is_next(self, key: str, step: int) -> bool:
        newest = self.newest.get(key)
        if newest is None:
            return len(self.newest) < MAX_KEYS
        return step > newest
