import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tracker.cli.gate_reports import HOSTILE, answer, passed, with_text
from tracker.cli.gate.junit import gate_junit
from tracker.domain.gate.types import GateReport, GateWord


def parsed(report: GateReport) -> ET.Element:
    return ET.fromstring(gate_junit(report))  # noqa: S314 - what we wrote


def case(root: ET.Element, name: str) -> ET.Element:
    return next(c for c in root.iter("testcase") if c.get("name") == name)


def test_each_check_is_a_test_case_with_its_answer() -> None:
    root = parsed(answer())
    suite = root[0]
    assert suite.get("name") == "tracker gate: run@200 against run@100"
    kinds = {c.get("name"): (c.get("classname"), c[0].tag, c[0].get("type")) for c in root.iter("testcase")}
    assert kinds == {
        "absent": ("gate.required", "error", "missing"),
        "sums": ("gate.required", "failure", "regression"),
        "few": ("gate.required", "failure", "inconclusive"),
        "same": ("gate.required", "system-out", None),
        "broken": ("gate.required", "error", "missing"),
        "style": ("gate.advisory", "skipped", None),
        "ttft p95, load default": ("gate.advisory", "skipped", None),
    }
    for element in (root, suite):
        assert [element.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["7", "2", "2", "2"]


def test_what_is_not_alike_is_an_error() -> None:
    report = passed()
    unlike = tuple(replace(check, word=GateWord.INCOMPARABLE) for check in report.benchmarks)
    assert case(parsed(replace(report, benchmarks=unlike)), "sums")[0].tag == "error"


def test_a_failure_says_why_and_what_was_lost() -> None:
    failure = case(parsed(answer()), "sums")[0]
    assert failure.get("message") == "loss of 0.060 (60 samples lost, 0 gained)"
    lines = (failure.text or "").splitlines()
    assert lines[0] == failure.get("message")
    assert "scores: 0.900 → 0.840 (n = 1000)" in lines
    assert lines[-4:] == ["prompt: question 2", "expected: target 2", "before: answer 1.0", "after: answer 0.0"]


def test_an_answer_without_checks_is_an_empty_suite() -> None:
    assert parsed(replace(passed(), benchmarks=())).get("tests") == "0"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_model_is_text_for_each_reader(hostile: str) -> None:
    root = parsed(with_text(hostile))
    assert len([*root.iter("testcase")]) == 7
    assert {e.tag for e in root.iter()} <= {
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "error",
        "skipped",
        "system-out",
    }
    assert gate_junit(with_text(hostile)).isascii()
    names = [(c.get("classname"), c.get("name")) for c in root.iter("testcase")]
    assert len(set(names)) == 7, "GitLab drops a second test of the same name"
    assert all("prompt" not in (out.text or "") for out in root.iter("system-out"))


@given(st.text(st.characters(), max_size=60))
def test_any_text_leaves_xml_that_is_read(text: str) -> None:
    assert len([*parsed(with_text(text)).iter("testcase")]) == 7
