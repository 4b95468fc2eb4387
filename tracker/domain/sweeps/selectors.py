"""Selectors of the checkpoints that a sweep evaluates. Pure."""

import re
from collections.abc import Iterable, Sequence

from eval_jobs.types import Checkpoint
from tracker.domain.records.branches import branches_of
from tracker.domain.sweeps.types import Pick, Selector

FORMS = (
    "`latest`, `latest:3`, `first`, `all`, `every:5`, `best`, `best:BENCHMARK` or a step, optionally prefixed with "
    "`RUN@`; or `models:/NAME@ALIAS`"
)
REGISTRY = "models:/"

OF_BENCHMARK = re.compile(r"(?:(?P<run>.+?)@)?best:(?P<benchmark>.+)")
"""Matched first: the name of a benchmark may contain an `@`, as in `pass@1`."""
_BY_STEP = re.compile(r"(?:(?P<run>.+)@)?(?P<step>[0-9]{1,18})")
_BY_WORD = re.compile(
    r"(?:(?P<run>.+)@)?(?:(?P<counted>latest|first|every)(?::(?P<number>(?!0+$)[0-9]{1,18}))?|(?P<word>all|best))"
)


def parse_selector(text: str) -> Selector:
    """Return the selector of a text.

    Raises:
        ValueError: it has none of `FORMS`.
    """
    if text.startswith(REGISTRY):
        return Selector(text=text, pick=Pick.REGISTERED)
    match = OF_BENCHMARK.fullmatch(text)
    if match is not None:
        return Selector(text=text, run=match["run"] or "", pick=Pick.BEST, benchmark=match["benchmark"])
    return _by_place(text)


def _by_place(text: str) -> Selector:
    match = _BY_STEP.fullmatch(text.strip())
    if match is not None:
        return Selector(text=text, run=match["run"] or "", pick=Pick.STEP, number=int(match["step"]))
    match = _BY_WORD.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"invalid checkpoint selector {text!r} (expected {FORMS})")
    pick = Pick(match["counted"] or match["word"])
    return Selector(text=text, run=match["run"] or "", pick=pick, number=int(match["number"] or 1))


def newest_of_steps(held: Iterable[Checkpoint]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a run on its newest branch, lowest step first, each step once."""
    checkpoints = tuple(held)
    branches = branches_of(checkpoints)
    by_step: dict[int, Checkpoint] = {}
    for checkpoint in sorted(checkpoints, key=lambda c: (c.ready_at, c.digest)):
        if branches.left_by(checkpoint) is None:
            by_step[checkpoint.step] = checkpoint
    return tuple(by_step[step] for step in sorted(by_step))


def selected_checkpoints(selector: Selector, held: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of `newest_of_steps` that a selector names by step or position; () if none is pinned."""
    number = selector.number
    match selector.pick:
        case Pick.LATEST:
            return tuple(held[-number:])
        case Pick.FIRST:
            return tuple(held[:number])
        case Pick.ALL:
            return tuple(held)
        case Pick.EVERY:
            return tuple(held[::number])
        case Pick.STEP:
            return tuple(c for c in held if c.step == number)
        case Pick.BEST | Pick.REGISTERED:
            raise ValueError(f"{selector.text} cannot be resolved by step")
