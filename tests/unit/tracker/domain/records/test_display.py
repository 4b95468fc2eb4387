import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.domain.records.display import (
    bytes_text,
    clean,
    count_text,
    duration_text,
    names_text,
    one_line,
    p_text,
    percent_text,
    score_text,
    shortened,
    signed_text,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))
"""Lone surrogates included: a JSON file can hold them."""


def test_an_escape_sequence_loses_what_makes_it_one() -> None:
    assert clean("\x1b[31mred\x1b[0m\x07") == "\ufffd[31mred\ufffd[0m\ufffd"


def test_marks_that_reverse_text_are_replaced() -> None:
    assert clean("user\u202egnp.exe\u2066") == "user\ufffdgnp.exe\ufffd"


def test_newlines_and_tabs_stay() -> None:
    assert clean("a\r\nb\tc") == "a\nb\tc"


def test_other_scripts_and_emoji_stay() -> None:
    text = "日本語 العربية 👩‍💻 é"
    assert clean(text) == text


@given(ANY_TEXT)
def test_any_text_can_be_written_as_utf8_after_cleaning(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert clean(cleaned) == cleaned


@given(ANY_TEXT)
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0.000"),
        (1.0, "1.000"),
        (0.9124, "0.912"),
        (-0.5, "-0.500"),
        (42.125, "42.12"),
        (float("nan"), "-"),
        (float("inf"), "-"),
    ],
)
def test_a_score_that_is_not_there_is_never_written_as_zero(value: float | None, text: str) -> None:
    assert score_text(value) == text


@pytest.mark.parametrize(
    ("delta", "text"),
    [(0.25, "+0.250"), (-0.25, "−0.250"), (0.0, "±0.000"), (-0.0001, "±0.000"), (float("nan"), "-")],  # noqa: RUF001
)
def test_a_difference_has_its_sign(delta: float, text: str) -> None:
    assert signed_text(delta) == text


@pytest.mark.parametrize(
    ("p", "text"), [(0.5, "0.5"), (0.00012, "0.00012"), (8.3e-5, "8.3e-05"), (1e-121, "< 1e-12"), (0.0, "< 1e-12")]
)
def test_a_p_value_has_two_digits_that_count(p: float, text: str) -> None:
    assert p_text(p) == text


@pytest.mark.parametrize(("share", "text"), [(1.0, "100 %"), (0.9999, "99 %"), (0.29, "29 %"), (0.0, "0 %")])
def test_only_all_is_called_100_percent(share: float, text: str) -> None:
    assert percent_text(share) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (32.84, "32.8 s"), (90, "1.5 min"), (5400, "1.5 h")])
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_names_are_listed_as_people_do() -> None:
    assert names_text(["a"]) == "a"
    assert names_text(["a", "b", "c"]) == "a, b and c"
    assert names_text(["a", "b", "c", "d", "e", "f"]) == "a, b, c and 3 more"


def test_one_thing_is_not_plural() -> None:
    assert [count_text(n, "gap") for n in (0, 1, 2)] == ["0 gaps", "1 gap", "2 gaps"]


def test_a_long_text_says_how_much_of_it_was_left_out() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 20 + "b" * 10, 9) == "aaaaaa [... 21 characters left out ...] bbb"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_600, "100 kB"), (999_600, "1.0 MB"), (14_000_000_000, "14.0 GB"),
     (3 * 10**15, "3000.0 TB")],
)  # fmt: skip
def test_a_size_has_the_unit_that_suits_it(count: int, text: str) -> None:
    assert bytes_text(count) == text
