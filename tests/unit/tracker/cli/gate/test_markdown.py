import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.unit.tracker.cli.gate_reports import HOSTILE, answer, passed, with_text
from tracker.cli.gate.markdown import MAX_BYTES, escaped, gate_markdown
from tracker.domain.gate.types import GateReport, GateWord
from tracker.domain.records.display import one_line

OURS = {"h2", "p", "table", "thead", "tbody", "tr", "th", "td", "b", "strong", "br", "sub", "ul", "li"}
FOLDED = {"details", "summary", "pre"}
ANY_TEXT = st.text(st.characters(), max_size=60)


class Page(HTMLParser):
    """What a reader of Markdown shows: tags, and the text of table rows."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self._is_in_cell = False
        self.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs, (tag, attrs)
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
            self._is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data


def page(report: GateReport) -> Page:
    return Page(gate_markdown(report))


def test_the_heading_and_the_table_say_it_all() -> None:
    text = gate_markdown(answer())
    assert text.startswith("## ▼ Gate: REGRESSION\n\nCandidate run@200 against run@100: decided by sums\n\n| check |")
    by_name = {row[0]: row for row in page(answer()).rows}
    assert by_name["sums"][1:6] == [
        "required",
        "▼ regression",
        "0.900 → 0.840n = 1000",
        "−0.060 [−0.075, −0.045]one-sided p < 1e-12, level 0.01, from samples alone",  # noqa: RUF001 - a true minus sign
        "60/0",
    ]
    assert by_name["style"][1:3] == ["advisory", "▼ regression"]
    assert "about 2,287 samples would decide, 50 available" in by_name["few"][6]
    assert by_name["ttft p95, load default"][2] == "? missing"


def test_lost_samples_are_folded_away_and_only_those_of_regressions() -> None:
    text = gate_markdown(answer())
    assert text.count("<details>") == text.count("</details>") == 2
    assert "<summary>sums: 3 of 60 lost samples</summary>" in text
    assert "prompt: question 0\nexpected: target 0\nbefore: answer 1.0\nafter: answer 0.0" in text
    assert "<details>" not in gate_markdown(passed())


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_model_cannot_disturb_the_page(hostile: str) -> None:
    found = page(with_text(hostile))
    assert set(found.tags) == OURS | FOLDED
    assert {len(row) for row in found.rows} == {7}
    assert len(found.rows) == 1 + len(answer().benchmarks) + 1
    assert len(gate_markdown(with_text(hostile)).encode()) <= MAX_BYTES


@given(ANY_TEXT)
@example("|" * 3)
@example("\\|")
@example("`|`")
@example("@a @b")
def test_any_text_is_shown_as_it_is_within_a_table(text: str) -> None:
    found = Page(f"| a | b |\n| --- | --- |\n| x{escaped(text)}x | y |\n")
    assert len(found.rows) == 2
    assert [cell.replace("\u200b", "") for cell in found.rows[1]] == [
        f"x{one_line(text)}x".replace("\u200b", ""),
        "y",
    ]
    assert set(found.tags) == {"table", "thead", "tbody", "tr", "th", "td"}


@given(ANY_TEXT)
def test_any_text_leaves_the_page_as_it_is(text: str) -> None:
    found = page(with_text(text))
    assert set(found.tags) == OURS | FOLDED
    assert {len(row) for row in found.rows} == {7}


def test_a_name_in_a_text_calls_nobody_and_a_checkpoint_can_be_copied() -> None:
    assert escaped("ask @everybody") == "ask @\u200beverybody"
    assert escaped("run@200") == "run@200"


def test_a_long_answer_is_cut_to_what_a_comment_holds_and_says_so() -> None:
    report = with_text("🦉&" * 250)
    many = replace(report, benchmarks=report.benchmarks * 30)
    text = gate_markdown(many)
    assert len(text.encode()) <= MAX_BYTES
    assert re.search(r"Not shown \(checks\): \d+; `--format json` lists all", text)
    assert {len(row) for row in Page(text).rows} == {7}


def test_what_passed_is_left_out_first() -> None:
    report = answer()
    same = next(check for check in report.benchmarks if check.word is GateWord.PASS)
    sums = next(check for check in report.benchmarks if check.word is GateWord.REGRESSION)
    rows = page(replace(report, benchmarks=(*[same] * 1_000, sums))).rows
    assert rows[1][0] == "sums"
    assert len(rows) < 1_000
