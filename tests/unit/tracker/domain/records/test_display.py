import math
from collections.abc import Callable

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


def test_what_is_shown_holds_no_control_and_no_mark_that_reverses_text_and_all_else() -> None:
    shown = {
        "\x1b[31mred\x1b[0m\x07": "\ufffd[31mred\ufffd[0m\ufffd",
        "user\u202egnp.exe\u2066": "user\ufffdgnp.exe\ufffd",
        "a\r\nb\tc": "a\nb\tc",
        "日本語 العربية 👩‍💻 é": "日本語 العربية 👩‍💻 é",
    }
    assert {text: clean(text) for text in shown} == shown


@given(ANY_TEXT)
def test_any_text_can_be_written_as_utf8_after_cleaning(text: str) -> None:
    cleaned = clean(text)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert clean(cleaned) == cleaned


@given(ANY_TEXT)
def test_one_line_is_one_line(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1


def test_a_score_that_is_not_there_is_never_written_as_zero() -> None:
    shown = {None: "-", 0.0: "0.000", 1.0: "1.000", 0.9124: "0.912", -0.5: "-0.500", 42.125: "42.12", math.inf: "-"}
    assert {value: score_text(value) for value in shown} == shown
    assert score_text(math.nan) == "-"


def test_a_difference_has_its_sign() -> None:
    shown = {0.25: "+0.250", -0.25: "\N{MINUS SIGN}0.250", 0.0: "±0.000", -0.0001: "±0.000"}
    assert {delta: signed_text(delta) for delta in shown} == shown
    assert signed_text(math.nan) == "-"


@pytest.mark.parametrize(
    ("text_of", "shown"),
    [
        (p_text, {0.5: "0.5", 0.00012: "0.00012", 8.3e-5: "8.3e-05", 1e-121: "< 1e-12", 0.0: "< 1e-12"}),
        (percent_text, {1.0: "100 %", 0.9999: "99 %", 0.29: "29 %", 0.0: "0 %"}),
        (duration_text, {0.04: "0.0 s", 32.84: "32.8 s", 90: "1.5 min", 5400: "1.5 h"}),
    ],
)
def test_a_number_has_the_digits_that_count_and_the_unit_that_suits_it_and_only_all_is_100_percent(
    text_of: Callable[[float], str], shown: dict[float, str]
) -> None:
    assert {value: text_of(value) for value in shown} == shown


def test_names_are_listed_as_people_do() -> None:
    assert names_text(["a"]) == "a"
    assert names_text(["a", "b", "c"]) == "a, b and c"
    assert names_text(["a", "b", "c", "d", "e", "f"]) == "a, b, c and 3 more"


def test_one_thing_is_not_plural() -> None:
    assert [count_text(n, "gap") for n in (0, 1, 2)] == ["0 gaps", "1 gap", "2 gaps"]


def test_a_long_text_says_how_much_of_it_was_left_out() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("a" * 20 + "b" * 10, 9) == "aaaaaa [... 21 characters omitted ...] bbb"


def test_a_size_has_the_unit_that_suits_it() -> None:
    shown = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 99_600: "100 kB", 999_600: "1.0 MB", 14 * 10**9: "14.0 GB"}
    assert {count: bytes_text(count) for count in shown} == shown
    assert bytes_text(3 * 10**15) == "3000.0 TB"
