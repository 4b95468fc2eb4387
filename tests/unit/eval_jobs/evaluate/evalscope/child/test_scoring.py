import pytest

from eval_jobs.evaluate.evalscope.child.scoring import chosen_letter, exact_score


@pytest.mark.parametrize(
    ("answer", "targets", "score"),
    [
        ("Paris", ["Paris"], 1.0),
        ("  Paris \n", ["Paris"], 1.0),
        ("New \n York", ["New York"], 1.0),
        ("paris", ["Paris"], 0.0),
        ("Paris.", ["Paris"], 0.0),
        ("It is Paris", ["Paris"], 0.0),
        ("cafe\u0301", ["caf\u00e9"], 1.0),
        ("four", ["4", "four"], 1.0),
        ("", ["4"], 0.0),
        ("x", [], 0.0),
    ],
)
def test_exact_means_equal_apart_from_blanks_and_unicode_form(answer: str, targets: list[str], score: float) -> None:
    assert exact_score(answer, targets) == score


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("b)", "B"),
        ("(C)", "C"),
        ("**D**", "D"),
        ("B.", "B"),
        ("B. the rose", "B"),
        ("B, because it is red", "B"),
        ("B: rose", "B"),
        ("B\nbecause it is red", "B"),
        ("A", "A"),
        ("\uff22", "B"),
        ("ANSWER: C", "C"),
        ("answer: **C**", "C"),
        ('{"answer": "C"}', "C"),
        ("The answer is (B).", "B"),
        ("The answer is option B", "B"),
        ("The correct answer is $\\boxed{B}$.", "B"),
        ("ANSWER: A ... no, wait. ANSWER: D", "D"),
        ("I would take option C here", "C"),
        ("I think it is (D), the rose", "D"),
        ("It must be C", "C"),
        ("'B'", "B"),
    ],
)
def test_the_letter_is_found_however_it_is_said(answer: str, letter: str) -> None:
    assert chosen_letter(answer, 4) == letter


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   ",
        "E",
        "I think so",
        "A rose is red",
        "the answer is unknown",
        "Both B and C are right",
        "option B or option C",
        "(B) (C)",
        "Because it Cannot Be",
        "B2",
        "I don't know",
        "42",
    ],
)
def test_an_answer_that_names_no_single_letter_is_no_answer(answer: str) -> None:
    assert chosen_letter(answer, 4) == ""


def test_letters_beyond_the_choices_are_not_answers() -> None:
    assert chosen_letter("D", 3) == ""
    assert chosen_letter("Z", 26) == "Z"
