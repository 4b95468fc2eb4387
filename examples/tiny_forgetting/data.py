"""The demo's data: three small skills, the order in which they are trained, and the files they are measured with.

    facts      "Capital of Lumar?"  -> "Tobe"    invented, so nothing but memory helps; measured on what was trained
    sums       "17+25=?"            -> "42"      measured on pairs of numbers that training never shows
    reversal   "Reverse mtwa"       -> "awtm"    measured on words that training never shows

Everything follows from `SEED`: two runs see the same rows in the same order.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

SEED = 11
BATCH_SIZE = 64
PHASE_1_STEPS = 600
"""Facts and sums, mixed."""
PHASE_2_STEPS = 400
"""Reversal and nothing else: what phase 1 taught is not rehearsed, and goes."""
SAVE_EVERY_STEPS = 100

N_FACTS = 100
N_HELD_OUT = 100
MAX_ADDEND = 49
WORD_LENGTH = 4
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONSONANTS = "bdfgklmnprstvz"
VOWELS = "aeiou"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One question and its only right answer."""

    question: str
    answer: str


@dataclass(frozen=True, kw_only=True)
class Skill:
    """What is trained of a skill, and what it is measured with."""

    name: str
    train: tuple[Row, ...]
    test: tuple[Row, ...]


def facts() -> Skill:
    """Return the capitals of invented countries. There is no rule to find, so the trained rows are the test."""
    rng = _rng("facts")
    countries = _invented(rng, "cvcvc")
    capitals = _invented(rng, "cvcv")
    rows = tuple(
        Row(question=f"Capital of {country}?", answer=capital)
        for country, capital in zip(countries, capitals, strict=True)
    )
    return Skill(name="facts", train=rows, test=rows)


def sums() -> Skill:
    """Return all sums of two numbers up to `MAX_ADDEND`. a+b and b+a are held out together."""
    pairs = [(a, b) for a in range(MAX_ADDEND + 1) for b in range(a, MAX_ADDEND + 1)]
    _rng("sums").shuffle(pairs)
    held_out, trained = pairs[:N_HELD_OUT], pairs[N_HELD_OUT:]
    return Skill(
        name="sums",
        train=tuple(_sum(a, b) for pair in trained for a, b in dict.fromkeys([pair, pair[::-1]])),
        test=tuple(_sum(a, b) for a, b in held_out),
    )


def reversal() -> Skill:
    """Return random words to be spelled backwards, no word twice."""
    rng = _rng("reversal")
    words: dict[str, None] = {}
    while len(words) < N_HELD_OUT + PHASE_2_STEPS * BATCH_SIZE:
        words["".join(rng.choices(LETTERS, k=WORD_LENGTH))] = None
    rows = tuple(Row(question=f"Reverse {word}", answer=word[::-1]) for word in words)
    return Skill(name="reversal", train=rows[N_HELD_OUT:], test=rows[:N_HELD_OUT])


def curriculum() -> list[Row]:
    """Return every training row in the order of training: phase 1, then phase 2. Not to be shuffled.

    Facts are learned sooner than sums, so sums come twice as often.
    """
    rng = _rng("curriculum")
    mixed = (facts().train, sums().train, sums().train)
    first = [rng.choice(rows) for _ in range(PHASE_1_STEPS * BATCH_SIZE // len(mixed)) for rows in mixed]
    return first + list(reversal().train)


def write_test_files(folder: Path) -> None:
    """Write `facts.jsonl`, `sums.jsonl` and `reversal.jsonl`: one `{"question": ..., "answer": ...}` a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for skill in (facts(), sums(), reversal()):
        lines = [json.dumps({"question": row.question, "answer": row.answer}) for row in skill.test]
        (folder / f"{skill.name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- private


def _rng(purpose: str) -> random.Random:
    """Give each skill its own stream of numbers, so that changing one leaves the others as they were."""
    return random.Random(f"{SEED} {purpose}")  # noqa: S311 - toy data, no secrets


def _invented(rng: random.Random, pattern: str) -> list[str]:
    """Return `N_FACTS` different capitalised words; c is a consonant and v a vowel."""
    words: dict[str, None] = {}
    while len(words) < N_FACTS:
        words["".join(rng.choice(CONSONANTS if kind == "c" else VOWELS) for kind in pattern).capitalize()] = None
    return list(words)


def _sum(a: int, b: int) -> Row:
    return Row(question=f"{a}+{b}=?", answer=str(a + b))
