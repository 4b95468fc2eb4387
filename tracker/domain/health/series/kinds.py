"""What the printed name of a number says: a loss, a gradient norm, a throughput. Pure."""

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache

from tracker.domain.health.logs.step_lines import SUMMARY, is_loss


class NumberKind(StrEnum):
    """What rules can say of a number."""

    LOSS = "loss"
    GRADIENT = "gradient"
    LEARNING_RATE = "learning_rate"
    RATE = "rate"
    """Throughput: work per second."""
    STEP_TIME = "step_time"
    MEMORY = "memory"
    NOT_TRAINING = "not_training"
    UNSTEADY = "unsteady"
    """Names that may be NaN in a healthy run: other times, the spread of one sample, overflows."""
    OTHER = "other"


_PATTERNS = {
    NumberKind.OTHER: r"\bvalues?(?![a-z])",
    NumberKind.NOT_TRAINING: r"\b(?:val|eval|test|predict)",
    NumberKind.LOSS: "",
    NumberKind.GRADIENT: r"grad(?:ient)?s?[ _/.]?norm(?:$|/)|^(?:grad|g?norm)$",
    NumberKind.LEARNING_RATE: r"(?:^|[^a-z])(?:lr|learning[ _]rate)(?![a-z])",
    NumberKind.RATE: r"(?:/|per[ _])s(?:ec(?:ond)?)?(?![a-z])|^t[pg]s(?![a-z])|throughput",
    NumberKind.STEP_TIME: r"^(?:time|dt|step_avg)$|(?:step|iter(?:ation)?|batch)[ _]?time|time per iter|\bs/it",
    NumberKind.MEMORY: r"(?:^|[^a-z])(?:gpu|max|peak)?(?:mem|memory|vram|rss)(?![a-z])",
    NumberKind.UNSTEADY: r"time|flops|mfu|speed|avg|(?:^|[^a-z])(?:eta|std|ppl|perplexity)(?![a-z])",
}
"""The first that fits decides."""
_FIRST_ONLY = {NumberKind.LOSS, NumberKind.RATE, NumberKind.STEP_TIME, NumberKind.NOT_TRAINING}


@lru_cache(maxsize=1_024)
def number_kind(name: str) -> NumberKind:
    """Return the kind of a number by its printed name in lower case."""
    for kind, pattern in _PATTERNS.items():
        if is_loss(name) if kind is NumberKind.LOSS else re.search(pattern, name):
            return kind
    return NumberKind.OTHER


def loss_in(values: Mapping[str, float]) -> float | None:
    """Return the training loss in a row; None: there is none."""
    for name, kind in training_numbers(tuple(values)):
        if kind is NumberKind.LOSS:
            return values[name]
    return None


@lru_cache(maxsize=1_024)
def training_numbers(names: tuple[str, ...]) -> tuple[tuple[str, NumberKind], ...]:
    """Return what is of training in a row: of losses and of speeds the first one, and a rate before a time.

    A row of an evaluation, or the summary of a training, has none.
    """
    kinds = {name: number_kind(name) for name in names}
    by_kind = {kind: name for name, kind in reversed(kinds.items())}
    if SUMMARY in names or (NumberKind.NOT_TRAINING in by_kind and NumberKind.LOSS not in by_kind):
        return ()
    speed = NumberKind.RATE if NumberKind.RATE in by_kind else NumberKind.STEP_TIME
    firsts = [(by_kind[kind], kind) for kind in (NumberKind.LOSS, speed) if kind in by_kind]
    return (*firsts, *((name, kind) for name, kind in kinds.items() if kind not in _FIRST_ONLY))
