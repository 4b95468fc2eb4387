"""Fixed prompts, and answers that are numbers or an error in words."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.errors import CanaryFailed
from eval_jobs.serve.resident.canary import ANSWER_TOKENS, PROMPT_TOKENS, ask_canaries, canary_prompts, read_canary
from eval_jobs.types import Canary
from tests.fakes.swap_engine import Said, SwapEngine
from tests.records import forgetting_run

PROMPTS = canary_prompts(101, 256)
MODELS = {"data": [{"id": "m-base", "max_model_len": 256}, {"id": "m", "max_model_len": None}]}


def body(row: int = 0, **changes: Any) -> dict[str, Any]:
    """What vLLM answers to one of the prompts."""
    tokens = [row * 10 + place for place in range(ANSWER_TOKENS)]
    choice = {"index": 0, "token_ids": tokens, "logprobs": {"token_logprobs": [-0.1 * (row + 1)] * ANSWER_TOKENS}}
    return {"choices": [{**choice, **changes}]}


BODIES = [body(row) for row in range(len(PROMPTS))]
CANARIES = tuple(read_canary(prompt, answer) for prompt, answer in zip(PROMPTS, BODIES, strict=True))


def test_prompts_are_the_same_every_time_and_one_fills_a_block_of_128() -> None:
    assert tuple(map(len, PROMPTS)) == PROMPT_TOKENS
    assert max(PROMPT_TOKENS) > 128
    assert canary_prompts(101, 256) == PROMPTS
    assert len({prompt[0] for prompt in PROMPTS}) == len(PROMPTS)


@given(st.integers(1, 300_000), st.integers(1, 5_000))
def test_prompts_are_of_the_vocabulary_and_leave_room_for_an_answer(vocab_size: int, max_model_len: int) -> None:
    for prompt in canary_prompts(vocab_size, max_model_len):
        assert prompt
        assert len(prompt) + ANSWER_TOKENS <= max(max_model_len, ANSWER_TOKENS + 1)
        assert all(0 <= token < vocab_size for token in prompt)


@given(st.integers(5, 300_000))
def test_prompts_differ_in_every_vocabulary(vocab_size: int) -> None:
    assert len(set(canary_prompts(vocab_size, 256))) == len(PROMPT_TOKENS)


def test_answers_are_kept_bit_by_bit() -> None:
    assert [canary.prompt for canary in CANARIES] == list(PROMPTS)
    assert CANARIES[2].tokens == tuple(range(20, 20 + ANSWER_TOKENS))
    assert CANARIES[2].logprobs == (-0.1 * 3,) * ANSWER_TOKENS


def test_a_stored_record_gives_its_canaries_back_bit_by_bit() -> None:
    canaries = (Canary(prompt=(1, 2), tokens=(3,), logprobs=(-0.1 - 2**-50,)), *CANARIES)
    record = forgetting_run().records[0]
    assert record.engine is not None
    record = replace(record, engine=replace(record.engine, canaries=canaries))
    assert record_from_bytes(record_to_bytes(record)) == record


BAD: list[tuple[dict[str, Any], str]] = [
    ({"logprobs": {"token_logprobs": [float("nan")] * ANSWER_TOKENS}}, "NaN or Inf"),
    ({"logprobs": {"token_logprobs": [float("-inf")] * ANSWER_TOKENS}}, "NaN or Inf"),
    ({"logprobs": {"token_logprobs": [-0.1]}}, "a response has"),
    ({"token_ids": [1, 2]}, r"a response has 2 tokens \(expected 8\)"),
    ({"logprobs": None}, "lacks tokens or log probabilities"),
    ({"logprobs": {}}, "lacks tokens or log probabilities"),
    ({"logprobs": {"token_logprobs": [None] * ANSWER_TOKENS}}, "lacks tokens or log probabilities"),
    ({"token_ids": None}, "lacks tokens or log probabilities"),
]


@pytest.mark.parametrize(("changes", "words"), BAD)
def test_an_answer_that_is_none_is_an_error_in_words(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CanaryFailed, match=words):
        read_canary(PROMPTS[0], body(**changes))


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"choices": None}, {"choices": []}, {"choices": [{}]}, {"choices": [1, 2]}, "NaN"]
)
def test_something_else_than_one_answer_is_an_error(answer: object) -> None:
    with pytest.raises(CanaryFailed, match="lacks tokens"):
        read_canary(PROMPTS[0], answer)


def test_prompts_are_asked_one_after_the_other() -> None:
    answers: list[Said] = [(200, answer) for answer in BODIES]
    with SwapEngine({"/v1/models": [(200, MODELS)], "/v1/completions": answers}) as engine:
        canaries = ask_canaries(engine.port, "m", vocab_size=101)
    assert engine.asked == ["/v1/models", *["/v1/completions"] * len(PROMPTS)]
    assert canaries == CANARIES


REFUSALS: list[tuple[Said, str]] = [
    ((400, {"error": "Out of range float values are not JSON compliant: nan"}), "is NaN or Inf: the weights"),
    ((500, {"error": "EngineDeadError"}), "HTTP 500.*EngineDeadError"),
    ((0, None), "no response"),
    ((-1, body()), "no response within 2 s"),
    ((200, None), "lacks tokens"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("said", "words"), REFUSALS)
def test_an_engine_that_does_not_answer_is_an_error_in_words(said: Said, words: str) -> None:
    with (
        SwapEngine({"/v1/models": [(200, MODELS)], "/v1/completions": [said]}) as engine,
        pytest.raises(CanaryFailed, match=words),
    ):
        ask_canaries(engine.port, "m", vocab_size=101, timeout_s=2.0 if said[0] == -1 else 60.0)


@pytest.mark.parametrize("models", [None, [], {}, {"data": [{"id": "m"}]}, {"data": ["m"]}])
def test_an_engine_that_does_not_say_how_long_prompts_may_be_is_an_error(models: object) -> None:
    with (
        SwapEngine({"/v1/models": [(200, models)]}) as engine,
        pytest.raises(CanaryFailed, match="no max_model_len in /v1/models"),
    ):
        ask_canaries(engine.port, "m", vocab_size=101)
