"""The text of a message: headline, facts, labels and their order, the same on every channel. Pure.

The sentence itself is `Alert.message`, worded where the alert is raised (`rules`, `stalls`). The reason of a verdict in
it is from `records.reason_text`.

Names, questions and messages are untrusted text: here they become single lines of bounded length, and each channel's
markup escapes them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC

from eval_jobs.identity import content_hash
from eval_jobs.limits import cut
from tracker.domain.records.alerts import Alert, AlertEvidence, AlertKind, AlertMessage, AlertState, alert_subject_text
from tracker.domain.records.display import (
    count_text,
    one_line,
    pending_text,
    score_text,
    signed_text,
    steps_text,
)

MAX_NAME_CHARS = 80
MAX_SENTENCE_CHARS = 600
MAX_SHORT_CHARS = 240
MAX_QUESTION_CHARS = 200
MAX_QUESTIONS = 3
MAX_LOG_LINES = 20
MAX_RANKS = 8
MAX_COMMAND_CHARS = 500
"""A longer command is omitted: truncated, it would be a different one."""
MAX_LINK_CHARS = 500

LOST = "Examples of lost samples"
LOGGED = "Lines of the log"
LINK = "Open the run"


@dataclass(frozen=True, kw_only=True)
class AlertLines:
    """One alert of a message, as single lines of unescaped text."""

    label: str
    """`Firing`, `Corrected` or `Resolved`."""
    headline: str
    """`sums regressed`."""
    sentence: str
    facts: tuple[tuple[str, str], ...]
    """Label and text, such as `compared with` and `steps 100 to 500`."""
    lost: tuple[str, ...]
    """A few questions that were answered correctly before and incorrectly now."""
    logged: tuple[str, ...]
    """A few lines of the trainer's log."""
    command: str
    """Command that shows more; empty: none."""


@dataclass(frozen=True, kw_only=True)
class MessageText:
    """A whole message, as single lines of unescaped text."""

    title: str
    """`run-a step 600: sums regressed (and 2 more)`."""
    is_firing: bool
    entries: tuple[AlertLines, ...]
    link: str
    """URL; empty: none."""


@dataclass(frozen=True, kw_only=True)
class Markup:
    """Notation of a channel. `bold` and `quote` take escaped text."""

    escape: Callable[[str], str]
    """Escapes untrusted text."""
    bold: Callable[[str], str]
    quote: Callable[[str], str]
    code: Callable[[str], str]
    """Takes unescaped text."""
    line_end: str = "\n"


@dataclass(frozen=True, kw_only=True)
class Room:
    """Size limits of a message, in the unit of `size`; 2000 characters or bytes are enough for one entry."""

    total: int
    """Limit of all blocks together, without the separators between them."""
    each: int = 1_000_000
    count: int = 100
    size: Callable[[str], int] = len


def message_text(message: AlertMessage) -> MessageText:
    """Return the text of a message."""
    entries = tuple(entry_of(alert) for alert in message.alerts)
    more = f" (and {len(entries) - 1} more)" if len(entries) > 1 else ""
    link = one_line(message.link)
    return MessageText(
        title=f"{run_and_step(message, MAX_NAME_CHARS)}: {entries[0].headline}{more}",
        is_firing=message.is_firing,
        entries=entries,
        link=link if len(link) <= MAX_LINK_CHARS else "",
    )


def run_and_step(news: Alert | AlertMessage, most: int) -> str:
    """Return `sft step 600`, or the run alone if the step is unknown; `most`: characters of the run."""
    run = line_of(news.run_id, most)
    if news.step is None:
        return run
    return f"{run} step {news.step}"


def id_of(message: AlertMessage) -> str:
    """Return an id that is equal if the same news is sent again, and different for any other news."""
    news = [[alert.fingerprint, alert.state, alert.raised_at.astimezone(UTC).isoformat()] for alert in message.alerts]
    return content_hash([message.run_id, message.step, news])


def entry_of(alert: Alert) -> AlertLines:
    """Return the lines of one alert."""
    subject = line_of(alert_subject_text(alert.subject), MAX_NAME_CHARS)
    name = line_of(alert.subject.name.replace("_", " "), MAX_NAME_CHARS)
    firing, resolved = _HEADLINES[alert.kind]
    command = one_line(alert.command)
    evidence = alert.evidence or AlertEvidence()
    lost = evidence.lost_samples[:MAX_QUESTIONS]
    return AlertLines(
        label="Corrected" if alert.is_correction else alert.state.value.capitalize(),
        headline=(firing if alert.state is AlertState.FIRING else resolved).format(subject=subject, name=name),
        sentence=line_of(alert.message, MAX_SENTENCE_CHARS),
        facts=tuple(_facts(alert, evidence)),
        lost=tuple(line_of(question, MAX_QUESTION_CHARS) for question in lost),
        logged=tuple(line_of(line, MAX_QUESTION_CHARS) for line in evidence.lines[:MAX_LOG_LINES]),
        command=command if len(command) <= MAX_COMMAND_CHARS else "",
    )


def blocks_text(text: MessageText, markup: Markup, room: Room) -> list[str]:
    """Return one block of text for each entry, then `and N more` if not all fit.

    Every entry gets its short form before remaining space is used for full forms, first entries first.
    """
    size = room.size
    short = [block(entry, markup, is_short=True) for entry in text.entries]
    longest_rest = size(f"and {len(short)} more")
    count = min(len(short), room.count)
    while count > 1 and sum(map(size, short[:count])) + (longest_rest if count < len(short) else 0) > room.total:
        count -= 1
    blocks, left_out = short[:count], len(short) - count
    free = room.total - sum(map(size, blocks)) - (longest_rest if left_out else 0)
    for index, entry in enumerate(text.entries[:count]):
        full = block(entry, markup)
        growth = size(full) - size(blocks[index])
        if growth <= free and size(full) <= room.each:
            blocks[index] = full
            free -= growth
    if left_out:
        return [*blocks, f"and {left_out} more"]
    return blocks


def block(entry: AlertLines, markup: Markup, *, is_short: bool = False) -> str:
    """Return one entry as lines: headline and sentence; unless `is_short`, also facts, command and lost questions."""
    escape = markup.escape
    lines = [markup.bold(escape(f"{entry.label}: {entry.headline}"))]
    if is_short:
        return markup.line_end.join([*lines, escape(cut(entry.sentence, MAX_SHORT_CHARS))])
    lines.append(escape(entry.sentence))
    lines += [f"{markup.bold(escape(label))}: {escape(text)}" for label, text in entry.facts]
    if entry.command:
        lines.append(markup.code(entry.command))
    for label, quoted in ((LOST, entry.lost), (LOGGED, entry.logged)):
        if quoted:  # last: in Markdown, lines after a quotation belong to it
            lines += [markup.bold(escape(label)), *(markup.quote(escape(line)) for line in quoted)]
    return markup.line_end.join(lines)


def line_of(text: str, limit: int) -> str:
    """Return untrusted text as one line of at most `limit` characters."""
    return cut(one_line(text[: 8 * limit]), limit)  # bounds the time for long texts


def bytes_long(text: str) -> int:
    """Return how many bytes `text` has in UTF-8."""
    return len(text.encode())


_HEADLINES: dict[AlertKind, tuple[str, str]] = {
    AlertKind.LOSS: ("{subject} regressed", "{subject}: loss closed"),
    AlertKind.LATENCY: ("{subject}: slower", "{subject}: no longer slower"),
    AlertKind.MISSING: ("{subject} has no result", "{subject} has a result again"),
    AlertKind.CHECKPOINT: ("checkpoint will not be evaluated", "checkpoint was evaluated after all"),
    AlertKind.OVERDUE: ("checkpoint overdue", "checkpoint no longer overdue"),
    AlertKind.STUCK: ("evaluation stuck", "evaluation no longer stuck"),
    AlertKind.UNFIT: ("{subject} is too noisy", "{subject} is no longer flagged as too noisy"),
    AlertKind.UNSENT: ("results rejected by MLflow", "no result rejected by MLflow any more"),
    AlertKind.BUG: ("unexpected error", "no unexpected error any more"),
    AlertKind.CRASH: ("training crashed: {name}", "resolved: {name}"),
    AlertKind.HANG: ("training hangs: {name}", "resolved: {name}"),
    AlertKind.DIVERGED: ("training diverged: {name}", "resolved: {name}"),
    AlertKind.FAULT: ("fault while training: {name}", "resolved: {name}"),
    AlertKind.ANOMALY: ("training is unusual: {name}", "resolved: {name}"),
    AlertKind.TEST: ("test alert, no action needed", "test alert resolved"),
}


def _facts(alert: Alert, evidence: AlertEvidence) -> Iterator[tuple[str, str]]:
    yield from _facts_of_change(evidence)
    if evidence.pending_steps:
        pending = pending_text(evidence.pending_steps)
        yield "provisional", f"{pending}; a correction or an end follows if the verdict changes"
    yield from _facts_of_training(evidence)
    is_firing = alert.state is AlertState.FIRING
    yield ("since" if is_firing else "resolved at"), f"{alert.raised_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _facts_of_change(evidence: AlertEvidence) -> Iterator[tuple[str, str]]:
    if evidence.change is not None:
        yield "change", _change_text(evidence, evidence.change)
    if evidence.score is not None:
        yield (
            "score",
            " -> ".join(score_text(score) for score in (evidence.before, evidence.score) if score is not None),
        )
    if evidence.baseline_steps:
        yield "compared with", steps_text(evidence.baseline_steps)
    if evidence.is_ratio and evidence.n_common:
        yield "requests", f"{evidence.n_common} on each side"
    elif evidence.n_lost or evidence.n_gained:
        paired = count_text(evidence.n_common, "paired sample")
        yield "samples", f"{evidence.n_lost} lost, {evidence.n_gained} gained of {paired}"


def _facts_of_training(evidence: AlertEvidence) -> Iterator[tuple[str, str]]:
    if evidence.ranks:
        more = f" and {len(evidence.ranks) - MAX_RANKS} more" if len(evidence.ranks) > MAX_RANKS else ""
        yield "ranks", ", ".join(map(str, evidence.ranks[:MAX_RANKS])) + more
    if evidence.hint:
        yield "hint", line_of(evidence.hint, MAX_SENTENCE_CHARS)


def _change_text(evidence: AlertEvidence, change: float) -> str:
    as_text, end = (_times_text, ")") if evidence.is_ratio else (signed_text, "; positive is better)")
    text = as_text(change)
    if evidence.ci_low is None or evidence.ci_high is None:
        return text
    return f"{text} (95 % CI {as_text(evidence.ci_low)} to {as_text(evidence.ci_high)}{end}"


def _times_text(ratio: float) -> str:
    return f"{score_text(ratio)}x"
