"""Chooses the screen of a benchmark: the samples that are evaluated first. Pure.

The choice depends only on the content of the questions. It is the same on every machine and in any order, and a larger
screen contains nearly all of a smaller one. Subsets are represented in proportion. A cluster is included completely or
not at all: several questions on one passage give little more information than one.
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
    """Hash of its content (`identity.sample_key`)."""
    subset: str
    cluster: str = ""
    """Empty: its own cluster."""


def screen_of(questions: Iterable[Question], screen: Screen) -> frozenset[str]:
    """Return the keys of the questions to evaluate first; all of them if the screen is not smaller."""
    distinct = tuple({question.key: question for question in questions}.values())
    wanted = max(screen.samples, math.ceil(screen.share * len(distinct)))
    if wanted >= len(distinct):
        return frozenset(question.key for question in distinct)
    strata = _strata(_units(distinct))
    quotas = _quotas({name: sum(map(len, units)) for name, units in strata.items()}, wanted)
    return frozenset(key for name, units in strata.items() for key in _filled(units, quotas[name]))


_Unit = tuple[str, ...]
"""Keys that are chosen together, the lowest rank first."""


def _rank(key: str) -> str:
    return content_hash([_SALT, key])


def _units(questions: Sequence[Question]) -> Mapping[_Unit, str]:
    """Return the units, each with its subset; a cluster in several subsets gets the first by name."""
    members: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        unit = ("cluster", question.cluster) if question.cluster else ("question", question.key)
        members.setdefault(unit, []).append(question)
    return {
        tuple(sorted((q.key for q in together), key=_rank)): min(q.subset for q in together)
        for together in members.values()
    }


def _strata(units: Mapping[_Unit, str]) -> Mapping[str, Sequence[_Unit]]:
    strata: dict[str, list[_Unit]] = {}
    for unit, subset in units.items():
        strata.setdefault(subset, []).append(unit)
    return {name: sorted(strata[name], key=lambda unit: _rank(unit[0])) for name in sorted(strata)}


def _quotas(sizes: Mapping[str, int], wanted: int) -> Mapping[str, int]:
    """Return the number of samples per subset: in proportion, rounded by largest remainders."""
    total = sum(sizes.values())
    quotas = {name: wanted * size // total for name, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda name: (-(wanted * sizes[name] % total), _rank(name)))
    for name in by_remainder[: wanted - sum(quotas.values())]:
        quotas[name] += 1
    return quotas


def _filled(units: Sequence[_Unit], quota: int) -> Iterable[str]:
    """Yield the keys of whole units until their number is as close to the quota as possible."""
    taken = 0
    for unit in units:
        if abs(taken + len(unit) - quota) > abs(taken - quota):
            return
        taken += len(unit)
        yield from unit
