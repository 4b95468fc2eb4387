from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tracker.cli.gate_reports import HOSTILE, answer, passed, with_text
from tracker.cli.gate.annotations import SHOWN_OF_A_KIND, command, gate_annotations


def as_github_reads(line: str) -> tuple[str, str, str]:
    """Kind, title and message of a command, undone as the runner undoes it."""
    head, _, message = line.removeprefix("::").partition("::")
    kind, _, properties = head.partition(" ")
    ((name, title),) = [one.split("=", 1) for one in properties.split(",")]
    assert name == "title"
    for code, char in (("%3A", ":"), ("%2C", ","), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        title = title.replace(code, char)
        if char not in ":,":
            message = message.replace(code, char)
    return kind, title, message


def test_the_answer_comes_first_and_then_what_did_not_pass() -> None:
    read = [as_github_reads(line) for line in gate_annotations(answer()).splitlines()]
    assert read[0] == ("error", "Gate: regression", "run@200 against run@100: decided by sums")
    assert [(kind, title) for kind, title, _ in read[1:]] == [
        ("error", "absent: missing"),
        ("error", "sums: regression"),
        ("error", "few: inconclusive"),
        ("error", "broken: missing"),
        ("warning", "style: regression (advisory)"),
        ("notice", "ttft p95, load default: missing (advisory)"),
    ]
    assert read[2][2].startswith("loss of 0.060 (60 samples lost, 0 gained)\nscores 0.900 → 0.840, change ")


def test_a_pass_is_one_notice() -> None:
    (line,) = gate_annotations(passed()).splitlines()
    assert line == "::notice title=Gate%3A pass::run@200 against run@100: passed 1 required check"


def test_more_than_github_shows_are_counted() -> None:
    report = answer()
    lines = gate_annotations(replace(report, benchmarks=report.benchmarks * 20)).splitlines()
    errors = [line for line in lines if line.startswith("::error ")]
    assert len(errors) == SHOWN_OF_A_KIND
    assert "72 more checks did not pass; `--format json` lists all" in errors[-1]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_model_cannot_begin_a_command(hostile: str) -> None:
    lines = gate_annotations(with_text(hostile)).splitlines()
    assert len(lines) == 7
    for line in lines:
        kind, _, message = as_github_reads(line)
        assert kind in {"error", "warning", "notice"}
        assert not any(char in message for char in "\x1b\x00\ud83d\u202e")
        assert len(line) < 4_096
        assert line.encode()


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], include_characters="\r\n")))
def test_a_command_is_always_one_line_and_says_what_was_meant(text: str) -> None:
    line = command("error", text, text)
    assert len(line.splitlines()) == 1
    assert as_github_reads(line) == ("error", text, text)


@given(st.text(st.characters(), max_size=60))
def test_any_text_leaves_as_many_lines(text: str) -> None:
    assert len(gate_annotations(with_text(text)).splitlines()) == 7
