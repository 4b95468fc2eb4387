"""Gate result -> workflow commands of GitHub Actions, which show it on the page of the workflow run. Pure.

GitHub shows the first ten annotations of each kind in a step, and cuts their text after 4,096 characters. So the
result comes first, then the checks that did not pass, as many as are shown.
"""

from collections.abc import Iterable

from tracker.domain.gate import text as words
from tracker.domain.gate.types import GateReport, GateWord

SHOWN_OF_A_KIND = 10


def gate_annotations(report: GateReport) -> str:
    """Return one command per line: the result, then checks that did not pass, as many of each kind as GitHub shows."""
    kind = "notice" if report.word is GateWord.PASS else "error"
    answer = [f"{words.sides_text(report)}: {words.deciding_text(report)}", *words.changed_lines(report)]
    head = command(kind, f"Gate: {report.word}", "\n".join(answer))
    by_kind: dict[str, list[str]] = {kind: [head]}
    for check in words.checks_of(report):
        if check.word is not GateWord.PASS:
            one = command(_kind(check), _title(check), "\n".join(_message(check)))
            by_kind.setdefault(_kind(check), []).append(one)
    for line in words.warning_lines(report):
        by_kind.setdefault("warning", []).append(command("warning", "Gate", line.removeprefix("warning: ")))
    return "".join(f"{line}\n" for kind, lines in by_kind.items() for line in _shown(kind, lines))


def command(kind: str, title: str, message: str) -> str:
    """Return one workflow command, always one line.

    `kind` is `error`, `warning` or `notice`; the message may have several lines.
    """
    return f"::{kind} title={_data(title).replace(':', '%3A').replace(',', '%2C')}::{_data(message)}"


def _kind(check: words.GateCheck) -> str:
    """Return `error` for a check that stops the change, `warning` or `notice` for an advisory one."""
    if check.required:
        return "error"
    if check.word is GateWord.REGRESSION:
        return "warning"
    return "notice"


def _title(check: words.GateCheck) -> str:
    if check.required:
        return f"{check.name}: {check.word}"
    return f"{check.name}: {check.word} (advisory)"


def _message(check: words.GateCheck) -> Iterable[str]:
    yield check.reason
    one = check.compared
    if one is not None:
        change = f"change (95 % CI) {words.gate_change_text(one)}, {words.level_text(one, check.alpha_test)}"
        yield f"scores {words.scores_text(one)}, {change}"


def _shown(kind: str, lines: list[str]) -> list[str]:
    if len(lines) <= SHOWN_OF_A_KIND:
        return lines
    left_out = len(lines) - SHOWN_OF_A_KIND + 1
    more = command(kind, "Gate", f"{left_out} more checks did not pass; `--format json` lists all")
    return [*lines[: SHOWN_OF_A_KIND - 1], more]


def _data(text: str) -> str:
    # GitHub unescapes exactly these characters; the percent sign must be escaped first.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
