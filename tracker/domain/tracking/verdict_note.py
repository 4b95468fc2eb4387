"""The newest verdict of every benchmark, stored in one short text and shown as a table. Pure.

    newest = merge(read_newest(stored_text), batch.verdicts, batch.left)
    stored_text = write_newest(newest)          # a tag's value, at most MAX_CHARS
    note = with_section(users_note, render(newest))

Records arrive in any order: an earlier step never replaces a later one. Checkpoints that training left behind when it
went back no longer count.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence

from tracker.domain.records.display import one_line
from tracker.domain.records.tracking import TrackedVerdict
from tracker.domain.records.types import VerdictWord
from tracker.domain.tracking.batch import urgency

_MARKUP = re.compile(r"([\\`*<>\[\]|])")
"""Characters that start a link, an image, HTML or a column in Markdown."""
MAX_CHARS = 8000
"""MLflow silently cuts longer tags of a run."""

MAX_INCIDENT_CHARS = 2000

BEGIN = "<!-- checkpoint-tracker -->"
END = "<!-- /checkpoint-tracker -->"


def merge(
    newest: Iterable[TrackedVerdict], verdicts: Iterable[TrackedVerdict], left: Collection[tuple[int, str]] = ()
) -> tuple[TrackedVerdict, ...]:
    """Return one verdict per benchmark, that of the highest step, most urgent first; at equal steps `verdicts` wins.

    `left` are step and digest of checkpoints that no longer count.
    """
    by_key = {v.key: v for v in newest if (v.step, v.digest) not in left}
    for verdict in (v for v in verdicts if (v.step, v.digest) not in left):
        known = by_key.get(verdict.key)
        if known is None or verdict.step >= known.step:
            by_key[verdict.key] = verdict
    return tuple(sorted(by_key.values(), key=urgency))


def write_newest(newest: Iterable[TrackedVerdict]) -> str:
    """Return the verdicts as text; if they do not fit, the least urgent ones are left out."""
    rows = [[v.benchmark, v.key, v.step, v.word, v.score, v.change, v.baseline, v.digest] for v in newest]
    while len(text := json.dumps(rows, separators=(",", ":"))) > MAX_CHARS:
        rows.pop()
    return text


def read_newest(text: str) -> tuple[TrackedVerdict, ...]:
    """Return the verdicts in a text of `write_newest`; () for anything else, such as a tag that a user edited."""
    try:
        rows = json.loads(text) if text else []
        return tuple(_verdict(*row) for row in rows)
    except (ValueError, TypeError):
        return ()


def render(newest: Iterable[TrackedVerdict]) -> str:
    """Return the verdicts as a Markdown table."""
    rows = tuple(newest)
    last = max((v.step for v in rows), default=0)
    head = _line("Benchmark", f"Verdict at step {last}", "Score", "Change, positive is better (baseline)")
    return "\n".join([head, "|---|---|---|---|", *(_row(v, last) for v in rows)])


def incidents_tag(incidents: Sequence[str]) -> str:
    """Return incidents as the value of a tag, one on each line, as many as fit."""
    lines: list[str] = []
    for one in incidents:
        line = one_line(one)
        if sum(map(len, lines)) + len(lines) + len(line) > MAX_INCIDENT_CHARS:
            break
        lines.append(line)
    return "\n".join(lines)


def incidents_note(title: str, tag: str) -> str:
    """Return the part of a description on the incidents in a tag, as Markdown; empty if there are none."""
    if not tag:
        return ""
    lines = "\n".join(f"- {_escaped(line)}" for line in tag.split("\n"))
    return f"**{title}**\n\n{lines}"


def with_section(note: str, section: str) -> str:
    """Return a user's `note` with our section replaced, or added at its end; rows that do not fit are left out."""
    before, _, rest = note.partition(BEGIN)
    after = rest.partition(END)[2]
    before = f"{before.rstrip()}\n\n" if before.strip() else ""
    room = MAX_CHARS - len(before) - len(after) - len(BEGIN) - len(END) - 2
    lines = section.splitlines()
    while lines and len("\n".join(lines)) > room:
        lines.pop()
    if lines:
        return f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}"
    return note


def _verdict(*row: object) -> TrackedVerdict:
    benchmark, key, step, word, score, change, baseline, digest = row
    return TrackedVerdict(
        benchmark=str(benchmark),
        key=str(key),
        step=int(str(step)),
        word=VerdictWord(str(word)),
        score=_number(score),
        change=_number(change),
        baseline=str(baseline),
        digest=str(digest),
    )


def _number(value: object) -> float | None:
    if value is None:
        return None
    return float(str(value))


def _row(verdict: TrackedVerdict, last: int) -> str:
    word = str(verdict.word) if verdict.step == last else f"{verdict.word} (step {verdict.step})"
    score = "-" if verdict.score is None else f"{verdict.score:.3f}"
    change = "-" if verdict.change is None else f"{verdict.change:+.3f} ({verdict.baseline})"
    return _line(_escaped(verdict.benchmark), f"**{word}**", score, change)


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", one_line(text))


def _line(*cells: str) -> str:
    # MLflow shows tables without any space between the columns.
    return "| " + " | ".join(f"{cell}&emsp;" for cell in cells) + " |"
