"""Which samples of a benchmark are its screen: the part that is asked first. Pure.

keys = screen_of(questions, Screen(samples=200, share=0.1))

The choice rests on the content of the questions alone, so it is the same on every machine, in whatever order they come,
and a larger screen holds nearly all of a smaller one. Every subset is there by its share, and a cluster whole or not at
all: part of a passage's questions would tell little more than one of them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.identity import content_hash
from eval_jobs.types import Screen

_SALT = "screen"


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of a benchmark."""

    key: str
    """Its content (`identity.sample_key`)."""
    subset: str
    cluster: str = ""
    """Empty: its own."""


def screen_of(questions: Iterable[Question], screen: Screen) -> frozenset[str]:
    """Return the keys of the questions that are asked first; all of them where that saves nothing."""
    distinct = tuple({question.key: question for question in questions}.values())
    wanted = max(screen.samples, math.ceil(screen.share * len(distinct)))
    if wanted >= len(distinct):
        return frozenset(question.key for question in distinct)
    strata = _strata(_units(distinct))
    quotas = _quotas({name: sum(map(len, units)) for name, units in strata.items()}, wanted)
    return frozenset(key for name, units in strata.items() for key in _filled(units, quotas[name]))


# --- private

_Unit = tuple[str, ...]
"""Keys that are chosen together, the lowest rank first."""


def _rank(key: str) -> str:
    return content_hash([_SALT, key])


def _units(questions: Sequence[Question]) -> Mapping[_Unit, str]:
    """Return what is chosen together, each with its subset: the first by name where a cluster lies in several."""
    members: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        unit = ("cluster", question.cluster) if question.cluster else ("question", question.key)
        members.setdefault(unit, []).append(question)
    return {
        tuple(sorted((q.key for q in together), key=_rank)): min(q.subset for q in together)
        for together in members.values()
    }


def _strata(units: Mapping[_Unit, str]) -> Mapping[str, Sequence[_Unit]]:
    """Return the units of every subset in the order in which they are taken."""
    strata: dict[str, list[_Unit]] = {}
    for unit, subset in units.items():
        strata.setdefault(subset, []).append(unit)
    return {name: sorted(strata[name], key=lambda unit: _rank(unit[0])) for name in sorted(strata)}


def _quotas(sizes: Mapping[str, int], wanted: int) -> Mapping[str, int]:
    """Return how many samples each subset gives: its share, and what rounding leaves to the largest remainders."""
    total = sum(sizes.values())
    quotas = {name: wanted * size // total for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: (-(wanted * sizes[name] % total), _rank(name)))
    for name in by_remainder[: wanted - sum(quotas.values())]:
        quotas[name] += 1
    return quotas


def _filled(units: Sequence[_Unit], quota: int) -> Iterable[str]:
    """Yield whole units until their number is as near to the quota as it gets."""
    taken = 0
    for unit in units:
        if abs(taken + len(unit) - quota) > abs(taken - quota):
            return
        taken += len(unit)
        yield from unit
