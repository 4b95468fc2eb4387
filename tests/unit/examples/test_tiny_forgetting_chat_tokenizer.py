"""The demo's tokenizer: what the trainer encodes is what a chat server will be asked."""

import string
from pathlib import Path
from typing import Any

import pytest

from examples.tiny_forgetting import data
from examples.tiny_forgetting.chat_tokenizer import IGNORED, MAX_LENGTH, build_tokenizer, encode_turn


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


@pytest.mark.slow
def test_text_comes_back_as_it_went_in(tokenizer: Any) -> None:
    text = "".join(c for c in string.printable if c.isprintable()) + "\n two  blanks"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text)


def test_characters_that_it_does_not_know_become_one_unknown_token_each(tokenizer: Any) -> None:
    assert tokenizer.encode("é漢") == [tokenizer.unk_token_id] * 2


def test_special_tokens_are_left_out_of_an_answer(tokenizer: Any) -> None:
    ids = [*tokenizer.encode("Tobe"), tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Tobe"


def test_a_trained_turn_is_the_chat_prompt_followed_by_the_answer(tokenizer: Any) -> None:
    turn = encode_turn(tokenizer, "3+4=?", "7")
    assert tokenizer.decode(turn["input_ids"]) == "<start>u3+4=?<end><start>a7<end>"
    messages = [{"role": "user", "content": "3+4=?"}]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert turn["input_ids"][: len(asked)] == asked


def test_only_the_answer_and_the_end_of_turn_carry_loss(tokenizer: Any) -> None:
    turn = encode_turn(tokenizer, "3+4=?", "7")
    assert len(turn["labels"]) == len(turn["input_ids"])
    assert [label for label in turn["labels"] if label != IGNORED] == [*tokenizer.encode("7"), tokenizer.eos_token_id]


def test_every_question_and_answer_fits_the_model_and_the_tests_longest_answer(tokenizer: Any) -> None:
    for row in data.curriculum()[::97]:
        assert len(encode_turn(tokenizer, row.question, row.answer)["input_ids"]) < MAX_LENGTH
        assert len(tokenizer.encode(row.answer)) < 12


@pytest.mark.slow
def test_a_saved_tokenizer_is_read_back_with_its_template(tokenizer: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert encode_turn(again, "Capital of Lumar?", "Tobe") == encode_turn(tokenizer, "Capital of Lumar?", "Tobe")
    assert again.eos_token == tokenizer.eos_token
