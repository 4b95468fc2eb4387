"""Reads steps from progress bars of tqdm and Lightning. Pure.

bars_in(" 12%|#2    | 12/100 [00:10<01:20, 1.1it/s]{'loss': 1.5}")     # a Bar of step 12, and the text behind it
bars_in("Epoch 1:  50%|#####     | 50/100 [00:10<00:10, 5.0it/s]")     # step 150: bars of Lightning count per epoch
"""

import re
from dataclasses import dataclass

from tracker.domain.health.logs.ranks import without_rank_and_time

MARK = "%|"
"""Occurs in every bar: a quick test."""
NESTED = "\x1b[A"
"""Escape sequence after a nested bar, such as that of an evaluation during training."""

_BAR = re.compile(r"\d{1,3}%\|[^|]*\| *(\d{1,9})/(\d{1,9}) \[([^\]]*)\]")
_TRAINING = re.compile(r"(?:epoch|train|step)", re.IGNORECASE)
_EPOCH = re.compile(r"epoch\D{0,3}(\d{1,6}+)(?:/(\d+))?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """What a bar of a training says."""

    step: int
    length: int
    """Total of the bar; a bar with another total is another bar."""
    total: int | None
    """Steps of the whole training; None: the bar is that of an epoch."""
    is_named: bool = False
    """Whether its name, or a loss in it, says that it is of a training; else it may be of any loop."""


def bars_in(text: str) -> tuple[list[Bar], str]:
    """Return the bars of trainings in a text, and what stands behind the last bar of any kind."""
    bars: list[Bar] = []
    end = 0
    is_nested = NESTED in text
    for found in _BAR.finditer(text):
        name = without_rank_and_time(text[end : found.start()].strip()).strip(" :")
        if not is_nested and (not name or _TRAINING.match(name)):
            bars += _bar(name, int(found[1]), int(found[2]), has_loss="loss" in found[3])
        end = found.end()
    return bars, text[end:]


def _bar(name: str, done: int, length: int, *, has_loss: bool) -> list[Bar]:
    epoch = _EPOCH.search(name)
    if epoch is not None:
        ended = int(epoch[1]) - (epoch[2] is not None)  # "1/3" counts from 1, as no trainer starts "0/3"
        return [Bar(step=max(0, ended) * length + done, length=length, total=None, is_named=True)]
    if name.lower().startswith("epoch"):
        return []  # the bar counts epochs
    return [Bar(step=done, length=length, total=length, is_named=bool(name) or has_loss)]
