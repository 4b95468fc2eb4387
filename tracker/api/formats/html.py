"""Tables as notebooks show them: escaped, with symbols and colours that dark themes keep readable."""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from tracker.domain.gate.text import GATE_SYMBOLS
from tracker.domain.overview.run import SYMBOLS
from tracker.domain.records.display import count_text

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN = 50
"""Rows."""

_WORD = "word"
_SYMBOL = {str(word): symbol for word, symbol in (*SYMBOLS.items(), *GATE_SYMBOLS.items())}
_RED, _AMBER, _GREEN = "#d9534f", "#c58a1b", "#3fa66b"
_COLOUR = {
    "forgotten": _RED,
    "regressed": _RED,
    "regression": _RED,
    "missing": _AMBER,
    "incomparable": _AMBER,
    "suspect": _AMBER,
    "inconclusive": _AMBER,
    "improved": _GREEN,
    "recovered": _GREEN,
    "pass": _GREEN,
}


def shown_html(title: str, frame: DataFrame) -> str:
    """Return a title and a table of at most 50 rows as HTML; the words of a column `word` have symbol and colour."""
    shown = frame.head(SHOWN).dropna(axis="columns", how="all")
    table = shown.style.hide(axis="index").format(_text, na_rep="")
    if _WORD in shown:
        table = table.format(_with_symbol, subset=[_WORD], na_rep="").map(_style, subset=[_WORD])
    parts = [f"<strong>{escape(title)}</strong>", table.to_html()]
    if len(frame) > SHOWN:
        parts.append(f"<em>and {count_text(len(frame) - SHOWN, 'row')} more</em>")
    return "\n".join(parts)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return escape(str(value))


def _with_symbol(word: object) -> str:
    return f"{_SYMBOL.get(str(word), '')} {_text(word)}"


def _style(word: object) -> str:
    return f"white-space: nowrap; font-weight: bold; color: {_COLOUR.get(str(word), 'inherit')}"
