import pytest

from eval_jobs.evaluate.data.rows import choice_item, exact_item, normalized, plain


@pytest.mark.parametrize("question", ["question", "query", "prompt", "input"])
@pytest.mark.parametrize("answer", ["answer", "response", "target", "output"])
def test_every_accepted_key_means_the_same(question: str, answer: str) -> None:
    item = exact_item({question: "2+2=", answer: "4"})
    assert (item.question, item.targets, item.subset) == ("2+2=", ("4",), "default")


@pytest.mark.parametrize("marks", ["\u0301\u0327", "\uff9e\u0327", "\u0344"])
def test_a_text_of_many_combining_marks_is_compared_as_soon_as_another(marks: str) -> None:
    text = "a" + marks * 600_000  # sorted all together, this takes an hour
    assert len(normalized("NFKC", text)) > len(text)
    assert plain(text) == plain(text)


def test_a_text_of_a_language_is_normalized_as_a_whole() -> None:
    assert plain(" a\u0327\u0301\n") == plain("a\u0301\u0327") == "\u00e1\u0327"
    assert normalized("NFKC", "\uff21\u3000\u2460") == "A 1"


def test_an_instruction_is_joined_with_its_input() -> None:
    for given, question in (("", "Add."), ("2, 2", "Add.\n2, 2")):
        assert exact_item({"instruction": "Add.", "input": given, "output": "4"}).question == question
    assert exact_item({"instruction": "Be brief.", "question": "2+2=", "answer": "4"}).question == "2+2="


def test_optional_keys_are_kept_as_text() -> None:
    item = exact_item({"question": "q", "answer": "a", "id": 7, "subset": "easy", "cluster": "p1", "other": None})
    assert (item.id, item.subset, item.cluster) == ("7", "easy", "p1")


@pytest.mark.parametrize(
    ("answer", "targets"), [(4, ("4",)), (4.5, ("4.5",)), (True, ("true",)), (["4", 4], ("4", "4"))]
)
def test_numbers_truth_values_and_lists_are_answers(answer: object, targets: tuple[str, ...]) -> None:
    assert exact_item({"question": "q", "answer": answer}).targets == targets


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "4"}, "missing question (expected a key `question` or"),
        ({"question": "q"}, "missing answer (expected a key `answer` or"),
        ({}, "found nothing"),
        ({"question": "q", "input": "i", "answer": "a"}, "more than one question: `question`, `input`"),
        ({"question": "q", "answer": "a", "output": "b"}, "more than one answer"),
        ({"question": None, "answer": "a"}, "the question must be text"),
        ({"question": " ", "answer": "a"}, "the question is empty"),
        ({"question": "q", "answer": ""}, "the answer is empty"),
        ({"question": "q", "answer": None}, "the answer must be text"),
        ({"question": "q", "answer": []}, "the list of accepted answers is empty"),
        ({"question": "q", "answer": {"a": 1}}, "the answer must be text"),
        ({"question": "q", "answer": "a", "subset": "../x"}, "invalid subset '../x'"),
    ],
)
def test_a_broken_exact_row_says_what_is_wrong(row: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        exact_item(row)
    assert message in str(caught.value)


COLOURS = ["sky", "rose", "grass"]


@pytest.mark.parametrize(
    "row",
    [
        {"choices": COLOURS, "answer": "B"},
        {"choices": COLOURS, "answer": 1},
        {"choices": COLOURS, "answer": "1"},
        {"choices": COLOURS, "answer": "rose"},
        {"choices": COLOURS, "answer": " rose "},
        {"A": "sky", "B": "rose", "C": "grass", "answer": "B"},
        {"A": "sky", "B": "rose", "C": "grass", "D": None, "answer": "rose"},
        {"choices": {"text": COLOURS, "label": ["A", "B", "C"]}, "answerKey": "B"},
        {"choices": {"text": COLOURS, "label": ["1", "2", "3"]}, "answerKey": "2"},
    ],
)
def test_the_right_choice_may_be_a_letter_an_index_a_label_or_the_text(row: dict[str, object]) -> None:
    item = choice_item({"question": "Which is red?"} | row)
    assert (item.choices, item.targets) == (("sky", "rose", "grass"), ("B",))


def test_numbers_are_choices_too_and_a_text_that_is_one_wins_over_an_index() -> None:
    item = choice_item({"question": "1+1=", "choices": [3, 2, 1], "answer": "2"})
    assert (item.choices, item.targets) == (("3", "2", "1"), ("B",))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "B"}, "expected 2 to 26 choices"),
        ({"choices": ["one"], "answer": 0}, "expected 2 to 26 choices"),
        ({"choices": list(range(27)), "answer": 0}, "got 27"),
        ({"choices": "ab", "answer": 0}, "`choices` must be a list"),
        ({"choices": ["a", ""], "answer": 0}, "the choice is empty"),
        ({"choices": COLOURS, "answer": 3}, "not an index from 0 to 2"),
        ({"choices": COLOURS, "answer": -1}, "not an index from 0 to 2"),
        ({"choices": COLOURS, "answer": "D"}, "not a label, index or text"),
        ({"choices": COLOURS, "answer": "7"}, "not a label, index or text"),
        ({"choices": ["B", "A"], "answer": "A"}, "matches the choices A and B"),
        ({"choices": ["same", "same"], "answer": "same"}, "matches the choices A and B"),
        ({"choices": {"text": COLOURS, "label": ["A"]}, "answer": "A"}, "3 choices but only 1 labels"),
        ({"choices": COLOURS}, "missing answer"),
    ],
)
def test_a_broken_choice_row_says_what_is_wrong(row: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        choice_item({"question": "q"} | row)
    assert message in str(caught.value)


def test_half_of_a_surrogate_pair_is_refused_because_no_server_can_be_sent_it() -> None:
    assert exact_item({"question": "smile \U0001f600", "answer": "2"}).question == "smile \U0001f600"
    with pytest.raises(ValueError, match="the question contains an unpaired surrogate"):
        exact_item({"question": "smile \ud83d", "answer": "2"})
