"""Formatting of numbers and untrusted text, for terminals and reports. Pure.

Untrusted text (names, prompts, answers, error messages) may contain anything; `clean` makes it safe to display.
"""

import math
import unicodedata
from collections.abc import Sequence

NOTHING = "-"
"""Shown if there is no number. Never 0."""
ONCE = {"is_once": True}
"""`extra` of a warning about settings or files, which are read repeatedly: a command logs it again if it changes."""

_KEPT = "\n\t"
_HIDDEN_CATEGORIES = {"Cc", "Cs"}
_BIDI_CONTROLS = frozenset(map(chr, (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))
REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """Return `text` with every character that could disturb a display replaced by U+FFFD.

    These are control characters (ANSI escapes begin with one) except newline and tab, lone surrogates (they cannot be
    encoded) and the marks that change the direction of text.
    """
    text = text.replace("\r\n", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():  # none of the other characters is
        return text
    return "".join(map(_shown, text))


def one_line(text: str) -> str:
    """Return `clean(text)` with every run of white space replaced by one space."""
    return " ".join(clean(text).split())


def clean_lines(text: str) -> list[str]:
    """Return the lines of a text, each cleaned, with its spaces."""
    return [clean(line) for line in text.splitlines()]


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters of `text`; a marker with their number replaces those omitted in the middle."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]} [... {len(text) - head - tail} characters omitted ...] {text[-tail:]}"


def score_text(score: float | None) -> str:
    """Return a score with three decimals, or two from 10 on."""
    if score is None or not math.isfinite(score):
        return NOTHING
    return _fixed(score)


def signed_text(delta: float) -> str:
    """Return a difference of scores with its sign: the minus sign U+2212, as wide as the plus."""
    if not math.isfinite(delta):
        return NOTHING
    text = _fixed(abs(delta))
    return f"±{text}" if float(text) == 0 else f"{'+' if delta > 0 else '−'}{text}"  # noqa: RUF001 - meant


def change_interval_text(low: float, high: float) -> str:
    """Return the interval of a difference of scores: `-0.476 to -0.228`."""
    return f"{signed_text(low)} to {signed_text(high)}"


def span_text(steps: Sequence[int]) -> str:
    """Return `600` or `100 to 600`."""
    if steps[0] == steps[-1]:
        return str(steps[0])
    return f"{steps[0]} to {steps[-1]}"


def steps_text(steps: Sequence[int]) -> str:
    """Return `step 600` or `steps 100 to 600`."""
    if steps[0] == steps[-1]:
        return f"step {steps[0]}"
    return f"steps {span_text(steps)}"


def pending_text(steps: Sequence[int]) -> str:
    """Return `results of steps 100 to 600 are pending`; `steps` ascend, and may have earlier results."""
    return f"results of {steps_text(steps)} are pending"


def p_text(p: float) -> str:
    """Return a p-value or a level with two significant digits, or `< 1e-12`: smaller values do not matter."""
    if p < 1e-12:
        return "< 1e-12"
    if p >= 1e-4:
        return f"{p:.2g}"
    return f"{p:.1e}"


def p_value_text(p: float) -> str:
    """Return `p = 0.03` or `p < 1e-12`."""
    text = p_text(p)
    if text.startswith("<"):
        return f"p {text}"
    return f"p = {text}"


def percent_text(share: float) -> str:
    """Return a share in percent, rounded down so that only a full share is shown as 100 %."""
    return f"{math.floor(share * 100 + 1e-9)} %"


def bytes_text(count: int) -> str:
    """Return a size in a suitable unit, in powers of 1000 as disks are sold."""
    return _in_unit(count, (" B", " kB", " MB", " GB", " TB"), whole_from=99.5)


def tokens_text(count: int | None) -> str:
    """Return `950`, `45.2 k` or `3.4 M`."""
    if count is None:
        return NOTHING
    return _in_unit(count, ("", " k", " M", " G"), whole_from=99.95)


def duration_text(seconds: float | None) -> str:
    """Return a duration in a suitable unit."""
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def names_text(names: list[str] | tuple[str, ...], *, at_most: int = 4) -> str:
    """Return `a, b and c`, or `a, b, c and 9 more`."""
    shown = [one_line(name) for name in names]
    if len(shown) > at_most:
        shown = [*shown[: at_most - 1], f"{len(shown) - at_most + 1} more"]
    if len(shown) == 1:
        return shown[0]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def count_text(count: int, noun: str) -> str:
    """Return `1 gap` or `2 gaps`."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}s"


def evaluated_text(scored: int, unscored: int) -> str:
    """Return `2 checkpoints evaluated, 1 without a score`, or `3 checkpoints, none with a score`."""
    if unscored and not scored:
        return f"{count_text(unscored, 'checkpoint')}, none with a score"
    without = f", {unscored} without a score" if unscored else ""
    return f"{count_text(scored, 'checkpoint')} evaluated{without}"


def _in_unit(count: int, units: Sequence[str], *, whole_from: float) -> str:
    """Return a count in the first of the units that makes it small; with a decimal below `whole_from`, if not exact."""
    size = float(count)
    for unit in units[:-1]:
        if size < 999.5:
            digits = 0 if unit == units[0] or size >= whole_from else 1
            return f"{size:.{digits}f}{unit}"
        size /= 1000
    return f"{size:.1f}{units[-1]}"


def _fixed(value: float) -> str:
    if abs(value) < 10:
        return f"{value:.3f}"
    return f"{value:.2f}"


def _shown(char: str) -> str:
    if char in _KEPT:
        return char
    hidden = unicodedata.category(char) in _HIDDEN_CATEGORIES or char in _BIDI_CONTROLS
    if hidden:
        return REPLACEMENT
    return char
