"""Counts the tokens of a benchmark's questions with the checkpoint's own tokenizer."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase

from eval_jobs.evaluate.data.files import read_items
from eval_jobs.evaluate.data.known_benchmarks import CHOICE, OWN_ADAPTERS, choice_template
from eval_jobs.evaluate.data.rows import Item
from eval_jobs.records.preflight import PromptLengths
from eval_jobs.types import Benchmark

TOKENIZER_FILE = "tokenizer.json"
COUNTED_BYTES = 1_000_000
"""The longest questions up to this total are counted: a tokenizer reads a few megabytes per second."""


def read_prompt_lengths(benchmark: Benchmark, tokenizer: Path) -> PromptLengths | None:
    """Return the tokens of the longest questions, without chat template; None if they cannot be counted here.

    Args:
        benchmark: its data was checked. Only questions of `exact` and `choice` are known before EvalScope runs.
        tokenizer: folder of the tokenizer; only `tokenizer.json` can be read without the model's library.
    """
    if benchmark.adapter not in OWN_ADAPTERS or benchmark.program is not None:
        return None
    if not (tokenizer / TOKENIZER_FILE).is_file():
        return None
    from tokenizers import Tokenizer  # here: commands that only read results do not need it

    try:
        counter = Tokenizer.from_file(str(tokenizer / TOKENIZER_FILE))
    except Exception:  # noqa: BLE001 - the library raises nothing narrower; the engine reports a broken tokenizer
        return None
    texts = sorted(_prompts(benchmark), key=lambda text: len(text.encode()), reverse=True)
    encoded = counter.encode_batch(list(_first_bytes(texts)), add_special_tokens=False)
    tokens = sorted((len(one.ids) for one in encoded), reverse=True)
    return PromptLengths(benchmark=benchmark.name, tokens=tuple(tokens), questions=len(texts))


def _asked(benchmark: Benchmark) -> Iterator[Item]:
    """Yield the questions that are evaluated: of the chosen subsets, up to the limit in each."""
    items = sorted(read_items(benchmark), key=lambda item: item.subset)
    for subset, group in groupby(items, key=lambda item: item.subset):
        if not benchmark.subsets or subset in benchmark.subsets:
            yield from list(group)[: benchmark.limit]


def _prompts(benchmark: Benchmark) -> Iterator[str]:
    """Yield the prompts as EvalScope builds them."""
    usual = choice_template() if benchmark.adapter == CHOICE else "{question}"
    template = benchmark.prompt_template or usual
    for item in _asked(benchmark):
        letters = ascii_uppercase[: len(item.choices)]
        choices = "\n".join(f"{letter}) {choice}" for letter, choice in zip(letters, item.choices, strict=False))
        yield template.format(question=item.question, choices=choices, letters=",".join(letters))


def _first_bytes(texts: list[str]) -> Iterator[str]:
    left = COUNTED_BYTES
    for text in texts:
        yield text
        left -= len(text.encode())
        if left <= 0:
            return
