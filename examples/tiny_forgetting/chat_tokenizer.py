"""A tokenizer built on the spot: one token a character, and a chat template so that any chat server can use it."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MAX_LENGTH = 128
PAD, UNKNOWN, START, END = "<pad>", "<unk>", "<start>", "<end>"
SPECIAL = (PAD, UNKNOWN, START, END)

IGNORED = -100
"""Label of tokens that carry no loss."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<start>{{ message['role'][0] }}{{ message['content'] }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<start>a{% endif %}"
)
"""`<start>uCapital of Lumar?<end><start>a` and the model goes on with `Tobe<end>`."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer for printable ASCII; anything else becomes `<unk>`."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    characters = [c for c in string.printable if c.isprintable()]
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, "\n", *characters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=START,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def encode_turn(tokenizer: PreTrainedTokenizerFast, question: str, answer: str) -> dict[str, list[int]]:
    """Return `input_ids` and `labels` of one question in the chat it will be asked in, and its answer.

    Only the answer and the end of the turn carry loss: the model learns to answer and to stop, not to ask.
    """
    turn = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    asked = tokenizer.encode(prompt, add_special_tokens=False)
    answered = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
    return {"input_ids": asked + answered, "labels": [IGNORED] * len(asked) + answered}
