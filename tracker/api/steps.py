"""Which steps of a run are asked for. Pure."""

import difflib
import operator
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, Protocol, SupportsIndex, TypeVar

import numpy as np

from eval_jobs.errors import ConfigError


class OfStep(Protocol):
    """What belongs to a step of a run."""

    @property
    def run_id(self) -> str:
        """Name of the run."""

    @property
    def step(self) -> int:
        """Step."""


Part = TypeVar("Part", bound=OfStep)

Steps = int | Sequence[int] | slice | Literal["latest"] | None
"""One step, some, a slice with both ends, the newest of each run, or all (None)."""

_SHOWN = 20


def checkpoint_name(name: str | SupportsIndex) -> str:
    """Return how the commands name a checkpoint: a step is a text, too.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(name, str):
        return name
    if isinstance(name, bool) or not isinstance(name, SupportsIndex):
        raise ConfigError(f"{name!r} is not a checkpoint", hint="pass a step, or a text such as RUN@latest")
    return str(operator.index(name))


def of_steps(known: Sequence[Part], steps: Steps) -> Sequence[Part]:
    """Return what belongs to these steps.

    Raises:
        ConfigError: nothing does, or `steps` is something else.
    """
    if steps is None:
        return known
    if isinstance(steps, str):
        return _newest_of_each_run(known, steps)
    every = {one.step for one in known}
    wanted = _in_slice(every, steps) if isinstance(steps, slice) else _named(every, steps)
    return [one for one in known if one.step in wanted]


def known_names_hint(what: str, known: Iterable[str], wanted: str) -> str:
    """Return a hint with the nearest of the known names, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(wanted, names, n=1)
    shown = ", ".join(names[:_SHOWN]) + (", \u2026" if len(names) > _SHOWN else "")
    if close:
        return f"did you mean {close[0]}? known {what}: {shown}"
    return f"known {what}: {shown or 'none'}"


def _newest_of_each_run(known: Sequence[Part], word: str) -> Sequence[Part]:
    if word != "latest":
        raise _no_step(word)
    newest: dict[str, int] = {}
    for one in known:
        newest[one.run_id] = max(one.step, newest.get(one.run_id, one.step))
    return [one for one in known if one.step == newest[one.run_id]]


def _in_slice(known: Collection[int], steps: slice) -> Collection[int]:
    if steps.step is not None:
        raise ConfigError("a slice of steps has no stride", hint="pass a list of steps")
    ends = []
    for end in (steps.start, steps.stop):
        ends.append(None if end is None else _whole(end))
    low, high = ends
    return {step for step in known if (low is None or step >= low) and (high is None or step <= high)}


def _named(known: Collection[int], steps: int | Iterable[int]) -> Collection[int]:
    if isinstance(steps, Iterable):
        wanted = {_whole(step) for step in steps}
    else:
        wanted = {_whole(steps)}
    for step in wanted:
        if step not in known:
            shown = ", ".join(map(str, sorted(known)[-_SHOWN:]))
            raise ConfigError(f"no evaluated checkpoint at step {step}", hint=f"newest steps: {shown or 'none yet'}")
    return wanted


def _whole(step: object) -> int:
    """Return a step as an int, also one of numpy."""
    if isinstance(step, bool | np.bool_) or not isinstance(step, SupportsIndex):
        raise _no_step(step)
    return operator.index(step)


def _no_step(step: object) -> ConfigError:
    hint = 'pass an integer, several, or a slice; "latest" alone is the newest of each run'
    return ConfigError(f"{step!r} is not a step", hint=hint)
