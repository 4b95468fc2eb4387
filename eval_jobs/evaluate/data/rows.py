"""Rows of a user's own JSONL file for `exact` and `choice`: accepted keys and their meaning. Pure.

{"question": "2+2=", "answer": "4"}
{"question": "Which is red?", "choices": ["sky", "rose"], "answer": "B"}
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Literal

QUESTION_KEYS = ("question", "query", "prompt", "input")
ANSWER_KEYS = ("answer", "response", "target", "output", "answerKey")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DEFAULT_SUBSET = "default"

_MARKS = 30
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_SUBSET_NAME = re.compile(r"[\w .+-]{1,100}")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One question, independent of the keys in its row."""

    question: str
    targets: tuple[str, ...]
    """Accepted answers; for `choice` one letter."""
    choices: tuple[str, ...] = ()
    subset: str = DEFAULT_SUBSET
    cluster: str = ""
    id: str = ""

    def meaning(self) -> tuple[object, object]:
        """Return what is asked and what counts as correct, each equal if it means the same."""
        choices = sorted(map(plain, self.choices))
        targets = self.targets if not choices else (self.choices[LETTERS.index(self.targets[0])],)
        return [self.subset, plain(self.question), choices], sorted(set(map(plain, targets)))


def plain(text: str) -> str:
    """Return a text as answers are compared: Unicode NFC, every run of whitespace as one space."""
    return " ".join(normalized("NFC", text).split())


def normalized(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Return a text in a Unicode normal form; after 30 combining marks in a row, U+034F separates them.

    Sorting them takes time in the square of their number. The limit is that of Unicode's Stream-Safe Text Format
    (UAX #15, section 13): no language has texts with as many.
    """
    if text.isascii():
        return text
    return unicodedata.normalize(form, _many_marks().sub("\\1\u034f", text))


@cache
def _many_marks() -> re.Pattern[str]:
    # The last five become marks only when they are decomposed.
    marks = [char for char in map(chr, range(0x20000)) if unicodedata.combining(char)]
    one = f"[{re.escape(''.join(marks))}\u0f73\u0f75\u0f81\uff9e\uff9f]"
    return re.compile(f"({one}{{{_MARKS}}})(?={one})")


def exact_item(row: Mapping[str, object]) -> Item:
    """Read a row of an `exact` file: a question and one answer, or a list of accepted ones.

    Raises:
        ValueError: a key is missing, doubled or of the wrong kind; the message is for a person.
    """
    answer = _one_of(row, ANSWER_KEYS, "answer")
    targets = tuple(_text(a, "answer") for a in answer) if isinstance(answer, list) else (_text(answer, "answer"),)
    if not targets:
        raise ValueError("the list of accepted answers is empty")
    return _item(row, targets)


def choice_item(row: Mapping[str, object]) -> Item:
    """Read a row of a `choice` file: a question, its choices, and the correct one as letter, index (from 0) or text.

    Choices are a list, ARC's `{"text": [...], "label": [...]}`, or keys `A`, `B`, ... .

    Raises:
        ValueError: a key is missing, doubled or of the wrong kind; the message is for a person.
    """
    choices, labels = _choices(row)
    answer = _one_of(row, ANSWER_KEYS, "answer")
    letter = LETTERS[_position(answer, choices, labels)]
    return _item(row, (letter,), choices)


def checked_row(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row for EvalScope; raise ValueError if its question is no text, or a number in it NaN or infinite."""
    _text(_one_of(row, QUESTION_KEYS, "question"), "question")
    json.dumps(row, allow_nan=False)
    return row


def _item(row: Mapping[str, object], targets: tuple[str, ...], choices: tuple[str, ...] = ()) -> Item:
    return Item(
        question=_text(_question(row), "question"),
        targets=targets,
        choices=choices,
        subset=_subset(row),
        cluster=_label(row, "cluster"),
        id=_label(row, "id"),
    )


def instruction_of(row: Mapping[str, object]) -> str:
    """Return `instruction` and, if it has text, `input` on a line of its own, as trainers join the two."""
    parts = (row.get("instruction"), row.get("input"))
    return "\n".join(part.strip() for part in parts if isinstance(part, str) and part.strip())


def _question(row: Mapping[str, object]) -> object:
    if "instruction" in row and row.keys().isdisjoint(("question", "query", "prompt")):
        return instruction_of(row)
    return _one_of(row, QUESTION_KEYS, "question")


def _one_of(row: Mapping[str, object], keys: Sequence[str], what: str) -> object:
    present = [key for key in keys if key in row]
    if not present:
        wanted = " or ".join(f"`{key}`" for key in keys)
        raise ValueError(f"missing {what} (expected a key {wanted}, found {_names(row)})")
    if len(present) > 1:
        raise ValueError(f"more than one {what}: {_names(present)}; keep one of them")
    return row[present[0]]


def _text(value: object, what: str) -> str:
    if isinstance(value, bool):
        value = str(value).lower()
    if isinstance(value, int | float):
        value = _printed(value, what)
    if not isinstance(value, str):
        raise ValueError(f"the {what} must be text, not {value!r:.80}")  # noqa: TRY004 - the row is wrong, not the call
    if not value.strip():
        raise ValueError(f"the {what} is empty")
    return _printed(value, what)


def _printed(value: object, what: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the {what} is {value}, not a finite number")
    text = str(value)
    if _HALF_PAIR.search(text):
        raise ValueError(f"the {what} contains an unpaired surrogate, which cannot be sent: {text!r:.80}")
    return text


def _label(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    if value is None:
        return ""
    return _printed(value, key)


def _subset(row: Mapping[str, object]) -> str:
    subset = _label(row, "subset") or DEFAULT_SUBSET
    if not _SUBSET_NAME.fullmatch(subset):
        raise ValueError(f"invalid subset {subset!r:.80} (use letters, digits, spaces and .+-_)")
    return subset


def _choices(row: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    given, labels = _given_choices(row)
    if not isinstance(given, list) or not isinstance(labels, list | str):
        raise ValueError("`choices` must be a list")  # noqa: TRY004 - the row is wrong, not the call
    if not 2 <= len(given) <= len(LETTERS):
        raise ValueError(f"expected 2 to {len(LETTERS)} choices in `choices` or in keys A, B, ..., got {len(given)}")
    if len(labels) < len(given):
        raise ValueError(f"{len(given)} choices but only {len(labels)} labels")
    return tuple(_text(c, "choice") for c in given), tuple(map(str, labels[: len(given)]))


def _given_choices(row: Mapping[str, object]) -> tuple[object, object]:
    given = row.get("choices")
    if given is None:
        return [row[letter] for letter in takewhile(lambda letter: row.get(letter) is not None, LETTERS)], LETTERS
    if isinstance(given, dict):
        return given.get("text"), given.get("label") or LETTERS
    return given, LETTERS


def _position(answer: object, choices: Sequence[str], labels: Sequence[str]) -> int:
    """Return the index of the correct choice; an ambiguous text is an error."""
    if isinstance(answer, int) and not isinstance(answer, bool):
        if not 0 <= answer < len(choices):
            raise ValueError(f"the answer {answer} is not an index from 0 to {len(choices) - 1}")
        return answer
    text = _text(answer, "answer").strip()
    readings = _readings(text, choices, labels)
    if not readings:
        raise ValueError(f"the answer {text!r:.80} is not a label, index or text of a choice")
    if len(readings) > 1:
        which = " and ".join(LETTERS[i] for i in readings)
        raise ValueError(f"the answer {text!r:.80} matches the choices {which}; use an index")
    return readings[0]


def _readings(text: str, choices: Sequence[str], labels: Sequence[str]) -> list[int]:
    """Return the choices that a text can mean, in ascending order: by label or content, else by index."""
    found = []
    for index, (choice, label) in enumerate(zip(choices, labels, strict=True)):
        if text in (label, choice.strip()):
            found.append(index)
    if not found and text.isdecimal() and int(text) < len(choices):
        found.append(int(text))
    return found


def _names(keys: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys) or "nothing"
