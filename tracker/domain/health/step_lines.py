"""Reads a step and its numbers from a line that a trainer printed. Pure.

    step_row("step 48410 | loss 13.8 | lr 1.76e-04")     -> step 48410, {"loss": 13.8, "lr": 1.76e-04}
    step_row(" iteration 29050/ 311541 | lm loss: 7.3E+00 |")
    step_row("iter 530: loss 2.24 BPC, time 58ms")
    step_row("s:2 trl:10.8 lr:0.0001 norm:1.5")
    step_row("500/20000 train_loss: 2.57 tok/s: 6833364")
    step_row('{"current_steps": 1, "loss": 0.65}')

One reader serves all trainers that name what they print: nothing here knows a trainer. Names stay as printed, in lower
case. Numbers may be NaN or infinite. A line without a step, such as a dictionary of Hugging Face, has step None.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|nan|inf(?:inity)?)"
_NAME = r"[a-z_][\w./%()-]{0,40}(?: [a-z_(][\w./%()-]{0,40}){0,6}"
_STEP = re.compile(
    r"(?:^|[\s\]:|>(])(?:global_step|iteration|step|iter)\s*[:=]?\s*(?P<named>\d+)(?![\w.])(?:\s*/\s*\d+)?"
    r"|^s:(?P<short>\d+)(?=\s)"
    r"|^(?P<first>\d+)\s*/\s*\d+(?=\s+[a-z_]+\s*[:=])",
    re.IGNORECASE,
)
_UNIT = r"(?:(?P<scale>[km])(?![a-z])|[a-zµ%/]*)"
_NAMED = re.compile(rf"(?P<name>{_NAME})\s*[:=]\s*(?P<number>{_NUMBER}){_UNIT}(?![\w.])", re.IGNORECASE)
_BESIDE = re.compile(rf"^\W*(?P<name>{_NAME})\s+(?P<number>{_NUMBER}){_UNIT}(?![\w.])", re.IGNORECASE)
_IN_DICT = re.compile(rf"""['"]([\w./()-]+)['"]\s*:\s*['"]?({_NUMBER})(?:/\d+)?['"]?\s*(?=[,}}])""", re.IGNORECASE)
_STEP_NAMES = (
    "step",
    "global_step",
    "current_steps",
    "global_step/max_steps",
    "iter",
    "iteration",
    "train/global_step",
)
_LOSS = re.compile(r"(?:^|[/_ ])(?:loss|trl)$")
_SCALES = {"k": 1e3, "m": 1e6}
_MOST_BEFORE = 120
"""Characters before the step: prefixes of loggers and launchers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    """What one line says of one step."""

    step: int | None
    """None: the line names none."""
    values: Mapping[str, float]
    """By the name that was printed, in lower case."""


def step_row(line: str) -> StepRow | None:
    """Return the step and the numbers of a line; None if it is no line of a step."""
    text = line.strip()
    if text.endswith("}") and "{" in text:
        return _of_dictionary(text[text.index("{") :])
    found = _STEP.search(text, 0, _MOST_BEFORE)
    if found is None:
        return None
    values = dict(_pairs(text[found.end() :]))
    if not values:
        return None
    step = found["named"] or found["short"] or found["first"]
    return StepRow(step=int(step), values=values)


def is_loss(name: str) -> bool:
    """Return whether a printed name is that of a loss, of training or of validation."""
    return _LOSS.search(name) is not None


def _pairs(text: str) -> Iterator[tuple[str, float]]:
    for part in _parts(text):
        named = list(_NAMED.finditer(part)) or list(_BESIDE.finditer(part))
        for one in named:
            scale = _SCALES.get((one["scale"] or "").lower(), 1.0)
            yield one["name"].strip().lower(), _number(one["number"]) * scale


def _parts(text: str) -> list[str]:
    if "|" in text:
        return text.split("|")
    return re.split(r",\s+", text)


def _of_dictionary(text: str) -> StepRow | None:
    values = {name.lower(): _number(number) for name, number in _IN_DICT.findall(text)}
    if not values:
        return None
    steps = [values.pop(name) for name in _STEP_NAMES if name in values]
    return StepRow(step=int(steps[0]) if steps else None, values=values)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
