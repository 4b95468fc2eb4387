from typing import Any

import pytest

from eval_jobs.evaluate.common.answer_check import BadAnswer, check_answer


def answer(message: object, *, ending: object = "stop", **more: object) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "finish_reason": ending, "message": message}], **more}


@pytest.mark.parametrize(
    "response",
    [
        answer({"content": "4"}),
        answer({"content": ""}),
        answer({"content": "4"}, ending="length"),
        answer({"content": "4"}, error=None),
        answer({"content": [{"type": "text", "text": "4"}]}),
        answer({"content": None, "tool_calls": [{"id": "a"}]}, ending="tool_calls"),
        answer({"content": None, "reasoning": "let me think"}, ending="length"),
        answer({"content": None, "refusal": "I will not"}),
        answer({"content": None}, ending="content_filter"),
    ],
)
def test_an_answer_is_a_text_or_says_what_it_has_instead(response: dict[str, Any]) -> None:
    check_answer(response, model="m")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({}, "no choices"),
        ({"choices": None, "error": "overloaded"}, "no choices: overloaded"),
        ({"choices": []}, "no choices"),
        ({"choices": "4"}, "no choices"),
        ({"choices": ["4"]}, "no choices"),
        (answer(None), "no message"),
        (answer("4"), "no message"),
        (answer({}), "no content"),
        (answer({"content": None}), "no content"),
        (answer({"content": None, "tool_calls": []}), "no content"),
        (answer({"content": 4}), "content is not text: 4"),
        (answer({"content": "4"}, ending=None), "finish_reason None"),
        (answer({"content": "4"}, ending="abort"), "finish_reason abort"),
        (answer({"content": "4"}, ending="error"), "finish_reason error"),
        (answer({"content": "4"}, error={"message": "died"}), "died"),
        (answer({"content": "4"}) | {"model": "other"}, r"from model 'other' \(expected 'm'\)"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_reason(response: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadAnswer, match=reason):
        check_answer(response, model="m")


def test_what_a_gateway_calls_the_model_is_its_own_business() -> None:
    check_answer(answer({"content": "4"}) | {"model": "m-2026-01-01"})
