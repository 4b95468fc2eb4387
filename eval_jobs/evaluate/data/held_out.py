"""Questions from training data, for projects without others.

{"messages": [{"role": "user", "content": "2+2="}, {"role": "assistant", "content": "4"}]}
-> {"question": "2+2=", "answer": "4"}
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.row_files import read_rows
from eval_jobs.evaluate.data.rows import ANSWER_KEYS, QUESTION_KEYS, instruction_of

MAX_QUESTIONS = 200
MAX_ROWS = 50_000
"""Rows that are read: training data can be large."""
MAX_ANSWER_CHARS = 100
"""Longer answers rarely equal the expected text."""


def read_held_out(path: Path) -> tuple[Mapping[str, str], ...]:
    """Return up to 200 distinct questions with short answers, evenly spaced; empty if the file contains none."""
    questions: dict[str, str] = {}
    try:
        for _, row in islice(read_rows(path), MAX_ROWS):
            question, answer = question_of(row)
            if question and 0 < len(answer) <= MAX_ANSWER_CHARS and "\n" not in answer:
                questions.setdefault(question, answer)
    except BadData:  # in a format that is not known here
        return ()
    rows = [{"question": question, "answer": answer} for question, answer in questions.items()]
    spacing = max(1, len(rows) // MAX_QUESTIONS)
    return tuple(rows[::spacing][:MAX_QUESTIONS])


def question_of(row: Mapping[str, object]) -> tuple[str, str]:
    """Return question and answer of a training row; empty texts if it has none. Pure."""
    for key in ("messages", "conversations"):
        turns = row.get(key)
        if isinstance(turns, list):
            return _said_by(turns, ("user", "human")), _said_by(turns, ("assistant", "gpt"))
    if "instruction" in row:
        return instruction_of(row), _first_text(row, ANSWER_KEYS)
    return _first_text(row, QUESTION_KEYS), _first_text(row, (*ANSWER_KEYS, "completion"))


def _first_text(row: Mapping[str, object], keys: Sequence[str]) -> str:
    return next(filter(None, (_text(row.get(key)) for key in keys)), "")


def _text(value: object) -> str:
    """Return a text, or the content of the last message of a list."""
    if isinstance(value, list) and value and isinstance(value[-1], Mapping):
        value = value[-1].get("content")
    return value.strip() if isinstance(value, str) else ""


def _said_by(turns: Sequence[object], roles: Sequence[str]) -> str:
    for turn in turns:
        if isinstance(turn, Mapping) and turn.get("role", turn.get("from")) in roles:
            return _text(turn.get("content", turn.get("value")))
    return ""
