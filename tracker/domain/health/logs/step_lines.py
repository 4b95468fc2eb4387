"""Reads a step and its numbers from a line that a trainer printed. Pure.

    step_row("step 48410 | loss 13.8 | lr 1.76e-04")     -> step 48410, {"loss": 13.8, "lr": 1.76e-04}
    step_row(" iteration 29050/ 311541 | lm loss: 7.3E+00 |")
    step_row("iter 530: loss 2.24 BPC, time 58ms")
    step_row("s:2 trl:10.8 lr:0.0001 norm:1.5")
    step_row("500/20000 train_loss: 2.57 tok/s: 6833364")
    step_row('{"current_steps": 1, "loss": 0.65}')

One reader serves all trainers that name what they print: nothing here knows a trainer. Names stay as printed, in lower
case. Numbers may be NaN or infinite. A line without a step, such as a dictionary of Hugging Face, has step None. Each
line is read by itself; `row_reader` also uses what the lines before it said.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

MAX_CHARS = 4_096
"""Characters of a line that are examined: longer lines are data, such as a printed tensor."""
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NUMBER = r"[-+]?(?:\d++(?:,\d++)*+(?:\.\d*+)?(?:e[-+]?\d++)?|\.\d++(?:e[-+]?\d++)?|nan|inf(?:inity)?)"
"""Repeated digits are never tried in other ways (`++`): a line of digits only would take minutes."""
STEP_DIGITS = 15
"""Digits of the largest step."""
_NAME = r"[a-z_][\w./%()-]{0,40}(?: [a-z_(][\w./%()-]{0,40}){0,6}"
_STEP = re.compile(
    r"(?:^|[\s\[\]:|>(]|/(?=global_step=))(?:global_step|iteration|step|iter(?:\(train\))?)\s*[:=]?\s*(?P<open>\[\s*)?"
    rf"(?P<named>\d{{1,{STEP_DIGITS}}})(?![\w.])(?:\s*/\s*(?P<of>\d{{1,{STEP_DIGITS}}}+))?"
    rf"|^s:(?P<short>\d{{1,{STEP_DIGITS}}})(?=\s)"
    rf"|^(?P<first>\d{{1,{STEP_DIGITS}}})\s*/\s*(?P<of_first>\d{{1,{STEP_DIGITS}}})(?=\s+[a-z_]+\s*[:=])",
    re.IGNORECASE,
)
_UNIT = r"(?:(?P<scale>[km])(?![a-z])|[a-zµ%/]*)"
_NAMED = re.compile(rf"(?P<name>{_NAME})(?:\s*[:=]\s*|=\[)(?P<number>{NUMBER}){_UNIT}(?![\w.])", re.IGNORECASE)
"""DeepSpeed prints a list of learning rates, one for each group of parameters: the first counts."""
_BESIDE = re.compile(rf"^\W*(?P<name>{_NAME})\s+(?P<number>{NUMBER}){_UNIT}(?![\w.])", re.IGNORECASE)
_IN_DICT = re.compile(rf"""['"]([\w./()-]+)['"]\s*:\s*['"]?({NUMBER})(?:/(\d+))?['"]?\s*(?=[,}}])""", re.IGNORECASE)
STEP_NAMES = (
    "step",
    "global_step",
    "current_steps",
    "global_step/max_steps",
    "iter",
    "iteration",
    "train/global_step",
    "_step",
)
_TOTAL_NAMES = ("total_steps", "max_steps")
_MLLOG = ":::MLLOG "
_MLLOG_VALUE = re.compile(rf'"key": *"([^"]+)", *"value": *({NUMBER}) *[,}}]', re.IGNORECASE)
_MLLOG_STEPS = ("step_num", "step", "samples_count")
"""The last counts samples: a run that logs it names no steps."""
SUMMARY = "train_runtime"
"""On the last line of a training, whose numbers are means of all steps."""
_HISTORY = re.compile(r"""['"]log_history['"]""")
"""In the last line of ms-swift, with all rows of the run inside."""
_LOSS = re.compile(r"(?:^|[/_ ])(?:loss|trl)$")
_SCALES = {"k": 1e3, "m": 1e6}
_COMMA = re.compile(r",\s+")
_MOST_BEFORE = 120
"""Characters before the step: prefixes of loggers and launchers."""


class StepRow(NamedTuple):
    """What one line says of one step."""

    step: int | None
    """None: the line names none."""
    values: Mapping[str, float]
    """By the name that was printed, in lower case."""
    is_summary: bool = False
    """Whether the numbers are of the whole run and so no point of a curve."""
    total: int | None = None
    """Steps of the whole training, where the line names them."""


def step_row(line: str) -> StepRow | None:
    """Return the step and the numbers of a line; None if it is no line of a step."""
    text = line.strip()
    if text[-1:] == "}" and "{" in text:
        if _MLLOG in text:
            return _of_mllog(text[text.index(_MLLOG) :])
        return _of_dictionary(text[text.index("{") :])
    found = _STEP.search(text, 0, _MOST_BEFORE)
    if found is None:
        return None
    opened, named, of_named, short, first, of_first = found.groups()
    if opened and "epoch" in text[: found.start()].lower():
        return None  # `Epoch [1/5], Step [100/600]`: it begins again with each epoch
    values = _named_numbers(text[found.end() :])
    if not values:
        return None
    total = of_named or of_first
    return StepRow(step=int(named or short or first), values=values, total=int(total) if total else None)


def is_loss(name: str) -> bool:
    """Return whether a printed name is that of a loss, of training or of validation."""
    return _LOSS.search(name) is not None


def _named_numbers(text: str) -> dict[str, float]:
    values = {}
    parts = text.split("|") if "|" in text else _COMMA.split(text)
    for part in parts:
        for name, number, scale in _NAMED.findall(part) or _BESIDE.findall(part):
            value = number_in(number)
            values[name.strip().lower()] = value * _SCALES[scale.lower()] if scale else value
    return values


def _of_dictionary(text: str) -> StepRow | None:
    history = _HISTORY.search(text)
    if history is not None:
        text = text[: history.start()] + "}"
    values: dict[str, float] = {}
    total = 0
    for printed, number, of in _IN_DICT.findall(text):
        name = printed.lower()
        values[name] = number_in(number)
        if of and name in STEP_NAMES:
            total = whole_step(number_in(of)) or 0
    if not values:
        return None
    return row_from(values, is_summary=history is not None or SUMMARY in values, total=total)


def _of_mllog(text: str) -> StepRow | None:
    found = _MLLOG_VALUE.search(text)
    if found is None or not is_loss(found[1].lower()):
        return None
    inside = {name.lower(): number_in(number) for name, number, _ in _IN_DICT.findall(text)}
    step = next((whole_step(inside[name]) for name in _MLLOG_STEPS if name in inside), None)
    return StepRow(step=step, values={found[1].lower(): number_in(found[2])})


def row_from(values: dict[str, float], *, is_summary: bool = False, total: int = 0) -> StepRow:
    """Return the row of named numbers, of which one may be the step; 0 steps in total are unknown."""
    steps = [whole_step(values.pop(name)) for name in STEP_NAMES if name in values]
    totals = [total, *(whole_step(values[name]) or 0 for name in _TOTAL_NAMES if name in values)]
    return StepRow(step=steps[0] if steps else None, values=values, is_summary=is_summary, total=max(totals) or None)


def number_in(text: str) -> float:
    """Return a number as trainers print it: with commas, NaN or infinite."""
    return float(text.replace(",", ""))


def whole_step(number: float | None) -> int | None:
    """Return a number as a count of steps; None: it is not one."""
    if number is not None and 0 <= number < 10**STEP_DIGITS and number == int(number):
        return int(number)
    return None
