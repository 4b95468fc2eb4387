from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.probe.client.prompts import LONG_WORDS, SHORT_WORDS, PromptLengthFit, calibrate, word_prompt


def test_a_prompt_has_as_many_words_as_asked() -> None:
    assert len(word_prompt(50, seed="1", index=0).split()) == 50


def test_the_same_seed_and_index_give_the_same_prompt() -> None:
    assert word_prompt(50, seed="1", index=7) == word_prompt(50, seed="1", index=7)


def test_no_two_prompts_of_a_load_start_alike() -> None:
    starts = {tuple(word_prompt(60, seed="0", index=i).split()[:5]) for i in range(1000)}
    assert len(starts) == 1000


def test_another_seed_gives_other_prompts() -> None:
    assert word_prompt(20, seed="a", index=0) != word_prompt(20, seed="b", index=0)


@given(st.floats(0.0, 50.0), st.floats(0.2, 8.0), st.integers(1, 5000))
def test_a_server_that_counts_linearly_gets_the_length_that_was_asked(
    fixed: float, per_word: float, tokens: int
) -> None:
    found = calibrate(round(fixed + per_word * SHORT_WORDS), round(fixed + per_word * LONG_WORDS))
    words = found.words_for(tokens)
    assert words >= 1
    if tokens > fixed + 2 * per_word:
        # Counts are whole, so the slope is known to 1 token in 16 words.
        assert abs(fixed + per_word * words - tokens) <= 2 + per_word + words / 8


def test_a_server_that_counts_nothing_gets_a_token_a_word() -> None:
    assert calibrate(None, 30) == PromptLengthFit()
    assert calibrate(30, None).words_for(64) == 64


def test_counts_that_make_no_sense_are_not_believed() -> None:
    assert calibrate(9, 9) == PromptLengthFit()
    assert calibrate(20, 3) == PromptLengthFit()


def test_a_template_longer_than_the_load_still_leaves_a_word() -> None:
    assert PromptLengthFit(fixed=100.0, per_word=1.0).words_for(64) == 1


@given(st.integers(1, 10_000))
def test_a_prompt_to_be_cut_is_longer_than_asked(tokens: int) -> None:
    assert PromptLengthFit(per_word=1.1).words_for_more_than(tokens) * 1.1 > tokens
