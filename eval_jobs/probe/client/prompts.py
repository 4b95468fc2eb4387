"""Distinct random prompts of about a given length in tokens, made of common words, and when to send them. Pure.

Text, not token ids: clients send text, and tokenization is part of the time to first token (2 ms of 10 for a tiny
model). Prompts differ within the first few tokens, so that a prefix cache cannot replace computation.

The tokenizer is not known here. The number of words is derived from the token counts that the server reports for two
short prompts; if the server can count tokens, each prompt is then cut to the exact length (client/main.py).
"""

import random
from dataclasses import dataclass
from itertools import accumulate

SHORT_WORDS = 8
LONG_WORDS = 24
"""Lengths in words of the two prompts whose tokens are counted; short enough to fit every context."""

COMMON_WORDS = """
the of and to in is that it for was on are with as his they be at one have this from or had by hot but some what there
we can out other were all your when up use word how said an each she which do their time if will way about many then
them would write like so these her long make thing see him two has look more day could go come did my sound no most
number who over know water than call first people may down side been now find any new work part take get place made live
where after back little only round man year came show every good me give our under name very through just form much
great think say help low line before turn cause same mean differ move right boy old too
"""
WORDS = tuple(COMMON_WORDS.split())


@dataclass(frozen=True, kw_only=True)
class PromptLengthFit:
    """Linear model of the tokens of a prompt: `fixed` (chat template, start token) + `per_word` * words.

    The default is for servers that report no usage: in most vocabularies each of these words is one token.
    """

    fixed: float = 0.0
    per_word: float = 1.0

    def words_for(self, tokens: int) -> int:
        """Return the number of words for a prompt of about `tokens` tokens; at least one."""
        return max(1, round((tokens - self.fixed) / self.per_word))

    def words_for_more_than(self, tokens: int) -> int:
        """Return the number of words for a prompt that is certain to exceed `tokens` tokens, to be cut."""
        return self.words_for(tokens + tokens // 4) + SHORT_WORDS


def calibrate(short_tokens: int | None, long_tokens: int | None) -> PromptLengthFit:
    """Return the line through prompts of SHORT_WORDS and LONG_WORDS words, given their token counts from the server."""
    if short_tokens is None or long_tokens is None or long_tokens <= short_tokens:
        return PromptLengthFit()
    per_word = (long_tokens - short_tokens) / (LONG_WORDS - SHORT_WORDS)
    return PromptLengthFit(fixed=short_tokens - per_word * SHORT_WORDS, per_word=per_word)


def word_prompt(words: int, *, seed: str, index: int) -> str:
    """Return a prompt of random words; another `index` gives another prompt."""
    generator = random.Random(f"{seed}-{index}")  # noqa: S311 - traffic, not secrets
    return " ".join(generator.choices(WORDS, k=words))


def arrivals_s(count: int, rate: float, *, seed: int) -> tuple[float, ...]:
    """Return the times, in seconds from the start, at which `count` independent requests arrive.

    Gaps are exponential, as in `vllm bench serve --request-rate`, and as there scaled so that the last request is sent
    at `count / rate`: with a few dozen requests, chance alone would change the rate by a fifth.

    `rate`: requests per second on average; above 0. The same seed gives the same times.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    times = list(accumulate(chance.expovariate(rate) for _ in range(count)))
    return tuple(time_s * (count / rate) / times[-1] for time_s in times)
