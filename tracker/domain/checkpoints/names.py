"""Which folder names are those of checkpoints, and their steps, learned from all names in one folder. Pure.

    steps_in(["checkpoint-100", "checkpoint-200", "runs"])    # {"checkpoint-100": 100, "checkpoint-200": 200}

`watch.pattern` replaces the rules by a glob pattern.
"""

import fnmatch
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeGuard

MAX_STEP = 10**12
"""A larger number in a name is no step, but a date or an attempt to exhaust the watcher."""

_NUMBER = "0*([0-9]+)"
_WORDS = "checkpoint|ckpt|(?:global_?)?step|iter(?:ation)?"
_STEP_FORMS = (
    rf"checkpoint[-_]?{_NUMBER}",
    rf"(?:model[-_])?(?:global[-_]?)?step[-_=]?{_NUMBER}",
    rf"iter(?:ation)?[-_]?{_NUMBER}",
    rf"ckpt[-_]?{_NUMBER}",
    rf"(?!tmp[-_]).*(?:[-_](?:{_WORDS})|globalstep)[-_=]?{_NUMBER}(?:\.ckpt)?",
    rf"(?:{_WORDS})[-_=]?{_NUMBER}[-_](?:hf|unsharded)",
)
"""Names that trainers use, most common first. Only the first that occurs in a folder counts: no step is found twice."""
_EPOCH_FORM = rf"(?:checkpoint|ckpt|model)?[-_]?epoch[-_=]?{_NUMBER}"
_FORMS = tuple(re.compile(form, re.IGNORECASE) for form in (*_STEP_FORMS, _EPOCH_FORM))
_SERIES = re.compile(r"(.*?)[-_=]?(?<![0-9])0*([0-9]{1,18})((?:[-_](?:hf|merged|unsharded))?)")
_LAST_NUMBER = re.compile(r"(?<![0-9])([0-9]+)$")
_NO_WHOLE_NUMBER = re.compile(
    rf"(?:(?:^|[^A-Za-z0-9]|{_WORDS})[0-9]+(?:\.[0-9]+)?e[-+]?|(?:^|[^A-Za-z0-9])-)[0-9]+(?:[-_](?:hf|merged|unsharded))?$",
    re.IGNORECASE,
)
"""1e3 and --5: numbers that are no steps, although they end in one."""


def steps_in(names: Iterable[str], pattern: str = "") -> Mapping[str, int]:
    """Return the step of each name of a checkpoint among the names in one folder; `pattern`: glob that decides."""
    if pattern:
        found = ((name, _step_by(pattern, name)) for name in names)
        return {name: step for name, step in found if step is not None and step <= MAX_STEP}
    by_form: dict[int, dict[str, int]] = {}
    for name in names:
        form, number = _known(name)
        if form is not None:
            by_form.setdefault(form, {})[name] = number
    return by_form[min(by_form)] if by_form else {}


def series_in(names: Iterable[str]) -> Mapping[str, int]:
    """Return the number of each name in the largest group of names that only differ in it: save_10, save_20.

    All are names of folders that hold a model, and none is that of a known form.
    """
    groups: dict[tuple[str, str], dict[str, int]] = {}
    for name in names:
        match = None if _NO_WHOLE_NUMBER.search(name) else _SERIES.fullmatch(name)
        if match is not None and int(match.group(2)) <= MAX_STEP:
            groups.setdefault((match.group(1), match.group(3)), {})[name] = int(match.group(2))
    largest = max(groups.values(), key=len, default={})
    return largest if len(set(largest.values())) > 1 else {}


def too_high(names: Iterable[str], pattern: str = "") -> list[str]:
    """Return the names that would be those of checkpoints if their numbers were not above `MAX_STEP`."""
    if pattern:
        return [name for name in names if (_step_by(pattern, name) or 0) > MAX_STEP]
    return [name for name in names if _known(name)[1] > MAX_STEP]


def step_of(name: str, pattern: str = "") -> int | None:
    """Return the step in a single name, or None if it is not the name of a checkpoint."""
    return steps_in([name], pattern).get(name)


def is_step(value: object) -> TypeGuard[int]:
    """Return whether a value that a trainer wrote can be a number of steps."""
    return type(value) is int and 0 <= value <= MAX_STEP


def counts_epochs(name: str) -> bool:
    """Return whether the number in a checkpoint's name is an epoch."""
    return _known(name)[0] == len(_STEP_FORMS)


def unit_of(uri: str, step: int) -> str:
    """Return what the step of a checkpoint at `uri` counts: "step", or "epoch" if only its name says it."""
    form, number = _known(uri.rpartition("/")[2])
    return "epoch" if form == len(_STEP_FORMS) and number == step else "step"


@lru_cache(maxsize=1 << 16)  # the same thousands of names are checked every second
def _known(name: str) -> tuple[int | None, int]:
    for form, known in enumerate(_FORMS):
        match = known.fullmatch(name)
        if match is not None:
            number = int(match.group(1))
            return (form if number <= MAX_STEP else None), number
    return None, 0


@lru_cache(maxsize=1 << 16)
def _step_by(pattern: str, name: str) -> int | None:
    match = _LAST_NUMBER.search(name)
    if match is None or not fnmatch.fnmatchcase(name, pattern):
        return None
    if name[: match.start()] != pattern.rstrip("*") and _NO_WHOLE_NUMBER.search(name):
        return None  # unless the pattern itself says what precedes the number
    return int(match.group(1))
