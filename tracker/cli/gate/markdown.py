"""Gate result -> Markdown for a GitHub step summary or a comment on a merge request. Pure.

Markup in text from models or files is written as character references, which Markdown does not interpret, and
samples are in <pre>, where neither @names nor #numbers become links.
"""

import html
import re
from collections.abc import Iterable, Sequence

from tracker.domain.calibration.repetition_text import is_unfit, not_calibrated_text, repetition_text, unfit_text
from tracker.domain.gate import text as words
from tracker.domain.gate.types import GateReport, GateWord
from tracker.domain.records.display import one_line

MAX_BYTES = 60_000
"""GitHub refuses comments of more than 65,536 characters; its step summaries and GitLab's notes may be longer."""

_TABLE_BYTES = 45_000
_HEAD = ("check", "", "result", "scores", "change, 95 % CI", "lost/gained", "reason")


def gate_markdown(report: GateReport) -> str:
    """Return the result as Markdown of at most `MAX_BYTES`, passed checks last; omitted parts are counted."""
    decided = f"Candidate {escaped(words.sides_text(report))}: {escaped(words.deciding_text(report))}"
    lines = words.changed_lines(report)[:_CHANGES_SHOWN]
    changed = "".join(f"- {escaped(line)}\n" for line in lines)
    head = f"## {words.GATE_SYMBOLS[report.word]} Gate: {report.word.upper()}\n\n{decided}\n\n"
    if changed:
        head += f"{changed}\n"
    checks = sorted(words.checks_of(report), key=lambda check: check.word is GateWord.PASS)
    rows = _fitting([_row(check) for check in checks], _TABLE_BYTES - _size(head))
    table = "".join([_line(_HEAD), _line(["---"] * len(_HEAD)), *rows, _left_out(len(checks) - len(rows), "checks")])
    text = f"{head}{table}\n{_notes(report)}"
    samples = [block for check in words.checks_of(report) for block in _samples(check)]
    shown = _fitting(samples, MAX_BYTES - _size(text) - _ROOM_FOR_COUNTS)
    return "".join([text, *shown, _left_out(len(samples) - len(shown), "benchmarks with lost samples")])


def escaped(text: str) -> str:
    """Return untrusted text on one line, escaped so that Markdown and HTML show it literally, also in a table."""
    harmless = _MENTION.sub("@\u200b", one_line(text))
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", harmless)


_MARKUP = re.compile(r"""[&<>"'`*_~|\\\[\]{}!#$^]""")
_MENTION = re.compile(r"(?<![A-Za-z0-9_])@")
"""A zero-width space follows it, so that a name in an error message notifies no user."""
_ROOM_FOR_COUNTS = 200
_NOTES_BYTES = 8_000
_CHANGES_SHOWN = 10


def _row(check: words.GateCheck) -> str:
    word = f"{words.GATE_SYMBOLS[check.word]} **{check.word}**" + (f"<br>{check.gain}" if check.gain else "")
    one, numbers = check.compared, ("", "", "")
    if one is not None:
        numbers = (
            _two_lines(words.scores_text(one), words.answered_text(one, check.contexts)),
            _two_lines(words.gate_change_text(one), words.level_text(one, check.alpha_test)),
            words.lost_and_gained_text(one),
        )
    return _line([f"<b>{escaped(check.name)}</b>", check.kind, word, *numbers, escaped(check.reason)])


def _two_lines(text: str, below: str) -> str:
    return f"{escaped(text)}<br><sub>{escaped(below)}</sub>"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _notes(report: GateReport) -> str:
    """Return notes on the error rate and the run-to-run noise, one line each."""
    compared = [check.compared for check in report.benchmarks if check.compared is not None]
    known = [one.repetition for one in compared if one.repetition is not None]
    missing = not_calibrated_text(words.name_text(one.benchmark) for one in compared if one.repetition is None)
    notes = [f"- {escaped(line)}\n" for line in words.warning_lines(report)]
    notes += [f"- **{escaped(words.short_reason(unfit_text(one)))}**\n" for one in known if is_unfit(one)]
    if missing:
        notes.append(f"- {escaped(missing)}\n")
    for one in known:
        notes.append(
            f"- <b>{escaped(words.name_text(one.benchmark))}</b>: {escaped(words.short_reason(repetition_text(one)))}\n"
        )
    shown = _fitting(notes, _NOTES_BYTES)
    left_out = _left_out(len(notes) - len(shown), "calibrations")
    return "".join([f"- {escaped(words.alpha_text(report))}\n", *shown, left_out, "\n"])


def _samples(check: words.GateCheck) -> Iterable[str]:
    """Yield the lost samples of one benchmark in a collapsed block."""
    examples, one = words.loss_examples(check), check.compared
    if one is None or not examples:
        return
    counts = f"{len(examples)} of {one.comparison.n_lost}"
    # In an HTML block everything up to </pre> is literal, even blank lines; the escaped texts cannot contain that tag.
    texts = "\n\n".join(
        words.no_command("\n".join(map(html.escape, words.sample_lines(example)))) for example in examples
    )
    head = f"<summary>{escaped(check.name)}: {counts} lost samples</summary>"
    yield f"<details>\n{head}\n\n<pre>\n{texts}\n</pre>\n\n</details>\n\n"


def _fitting(parts: Sequence[str], room: int) -> Sequence[str]:
    """Return as many of the first parts as fit into `room` bytes."""
    used = 0
    for number, part in enumerate(parts):
        used += _size(part)
        if used > room:
            return parts[:number]
    return parts


def _left_out(count: int, noun: str) -> str:
    if count == 0:
        return ""
    return f"\nNot shown ({noun}): {count}; `--format json` lists all.\n"


def _size(text: str) -> int:
    return len(text.encode())
