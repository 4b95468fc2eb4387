"""Moments of the training after which scores are expected to be lower for a while, from its curves and phases. Pure.

restart of the learning rate    it has fallen by 30 % or more since its peak, and rises to twice its lowest value
change of the batch size        by 10 % or more, from one logged value to the next
phase NAME                      begins (`[[phase]]` in the settings)
"""

from collections.abc import Iterable, Sequence

from tracker.domain.records.policy import Phase
from tracker.domain.records.reasons import Disruption
from tracker.domain.records.types import CurvePoint

_FALLEN = 0.7
_RISEN = 2.0
_OTHER_SIZE = 1.1


def disruptions_of(points: Iterable[CurvePoint], phases: Iterable[Phase]) -> tuple[Disruption, ...]:
    """Return the disruptions that training curves and `phases` show, by step; the start of the training is none."""
    curves: dict[str, list[CurvePoint]] = {}
    for point in points:
        curves.setdefault(point.key, []).append(point)
    found = [Disruption(step=p.from_step, what=f"phase {p.name}") for p in phases if p.from_step > 0]
    for key, curve in curves.items():
        name = key.rpartition("/")[2]
        if name == "learning_rate":
            found += _restarts(curve)
        elif name.endswith("batch_size"):
            found += _other_sizes(curve)
    return tuple(sorted(found, key=lambda disruption: disruption.step))


def _restarts(curve: Sequence[CurvePoint]) -> list[Disruption]:
    found: list[Disruption] = []
    peak, low = 0.0, curve[0]
    for point in curve:
        if point.value < low.value or low.value >= _FALLEN * peak:
            low = point
        if low.value < _FALLEN * peak and point.value > _RISEN * max(low.value, 0.0):
            found.append(Disruption(step=low.step, what="restart of the learning rate"))
            peak, low = point.value, point
        peak = max(peak, point.value)
    return found


def _other_sizes(curve: Sequence[CurvePoint]) -> list[Disruption]:
    found: list[Disruption] = []
    before = curve[0]
    for point in curve:
        smaller, larger = sorted((before.value, point.value))
        if larger > _OTHER_SIZE * smaller:
            found.append(Disruption(step=before.step, what="change of the batch size"))
        before = point
    return found
