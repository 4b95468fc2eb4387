"""The note on a run shows the newest verdict of every benchmark, and leaves what a person wrote alone."""

from dataclasses import replace

from tracker.domain.records.tracking import TrackedVerdict
from tracker.domain.records.types import VerdictWord
from tracker.domain.tracking.verdict_note import (
    BEGIN,
    MAX_CHARS,
    merge,
    read_newest,
    render,
    with_section,
    write_newest,
)

FACTS = TrackedVerdict(
    benchmark="facts",
    key="facts",
    step=800,
    word=VerdictWord.FORGOTTEN,
    score=0.125,
    change=-0.75,
    baseline="peak, steps 510 to 600",
    digest="of 800",
)
SUMS = replace(FACTS, benchmark="sums", key="sums", word=VerdictWord.FIRST, change=None, baseline="")


def test_the_most_urgent_verdict_comes_first() -> None:
    assert merge([], [SUMS, FACTS]) == (FACTS, SUMS)


def test_a_late_step_never_replaces_a_later_one() -> None:
    late = replace(FACTS, step=700, word=VerdictWord.IMPROVED)
    assert merge([FACTS], [late]) == (FACTS,)
    assert merge([late], [FACTS]) == (FACTS,)


def test_what_training_left_behind_is_not_the_newest_although_its_step_is_higher() -> None:
    old, again = replace(FACTS, digest="monday"), replace(FACTS, step=400, digest="tuesday", word=VerdictWord.FIRST)
    left = [(400, "monday"), (800, "monday")]
    assert merge([old, SUMS], [again], left) == (again, SUMS)
    assert merge([again], [old], left) == (again,), "it may be measured late"
    assert merge(read_newest(write_newest([old])), [], left) == ()


def test_a_verdict_that_was_concluded_again_at_the_same_step_wins() -> None:
    again = replace(FACTS, word=VerdictWord.REGRESSED)
    assert merge([FACTS], [again]) == (again,)


def test_what_is_written_is_read_again() -> None:
    assert read_newest(write_newest((FACTS, SUMS))) == (FACTS, SUMS)


def test_a_text_that_somebody_else_wrote_counts_as_nothing_known() -> None:
    for text in ("", "hello", "{}", "[1]", '[["a"]]', "null", '[["a","a","x","no-word",0,0,0]]'):
        assert read_newest(text) == ()


def test_verdicts_that_do_not_fit_are_left_out_from_the_least_urgent_end() -> None:
    many = [replace(FACTS, benchmark=f"b{i:04}", key=f"b{i:04}") for i in range(1000)]
    text = write_newest(many)
    assert len(text) <= MAX_CHARS
    kept = read_newest(text)
    assert kept == tuple(many[: len(kept)])
    assert len(kept) > 90


def test_the_table_names_the_step_of_a_verdict_that_is_older_than_the_others() -> None:
    table = render((FACTS, replace(SUMS, step=700)))
    assert "Verdict at step 800" in table
    assert "**forgotten**" in table
    assert "**first (step 700)**" in table
    assert "-0.750 (peak, steps 510 to 600)" in table


def test_a_missing_score_is_a_dash() -> None:
    assert "| -&emsp; |" in render([replace(FACTS, score=None)])


def test_a_bar_in_a_name_does_not_break_the_table() -> None:
    assert r"a\|b" in render([replace(FACTS, benchmark="a|b")])


def test_a_name_is_shown_and_is_neither_a_link_nor_html_nor_another_row() -> None:
    name = "<img src=//x>[a](javascript:b)`c`\n| d"
    (row,) = [line for line in render([replace(FACTS, benchmark=name)]).splitlines() if "img" in line]
    assert r"\<img src=//x\>\[a\](javascript:b)\`c\` \| d" in row


def test_a_persons_note_stays_and_our_section_is_replaced() -> None:
    first = with_section("My best run.", render([FACTS]))
    assert first.startswith("My best run.\n\n" + BEGIN)
    second = with_section(first + "\nRead this too.", render([SUMS]))
    assert second.startswith("My best run.")
    assert second.endswith("Read this too.")
    assert "sums" in second
    assert "facts" not in second


def test_the_same_section_again_changes_nothing() -> None:
    once = with_section("note", render([FACTS]))
    assert with_section(once, render([FACTS])) == once


def test_a_long_note_of_a_person_is_never_cut() -> None:
    person = "x" * (MAX_CHARS - 10)
    assert with_section(person, render([FACTS])) == person


def test_rows_that_do_not_fit_beside_a_persons_note_are_left_out() -> None:
    rows = render([replace(FACTS, benchmark=f"b{i:04}", key=f"b{i:04}") for i in range(200)])
    note = with_section("x" * 5000, rows)
    assert len(note) <= MAX_CHARS
    assert "b0000" in note
