"""The demo's three skills, their order in training, and the files they are measured with."""

import json
from pathlib import Path

import pytest

from examples.tiny_forgetting import data
from examples.tiny_forgetting.data import Row, Skill

SKILLS = (data.facts(), data.sums(), data.reversal())


def test_the_same_rows_come_every_time() -> None:
    assert (data.facts(), data.sums(), data.reversal()) == SKILLS
    assert data.curriculum() == data.curriculum()


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.name)
def test_a_test_has_a_hundred_different_questions(skill: Skill) -> None:
    assert len({row.question for row in skill.test}) == len(skill.test) == 100


def test_every_sum_is_right() -> None:
    for row in data.sums().train + data.sums().test:
        a, b = row.question.removesuffix("=?").split("+")
        assert int(a) + int(b) == int(row.answer)


def test_no_sum_of_the_test_is_trained_in_either_order() -> None:
    trained = {_addends(row) for row in data.sums().train}
    for row in data.sums().test:
        assert _addends(row) not in trained
        assert _addends(row)[::-1] not in trained


def test_no_word_of_the_test_is_trained() -> None:
    reversal = data.reversal()
    assert not {row.question for row in reversal.test} & {row.question for row in reversal.train}


def test_facts_are_measured_on_what_was_trained_because_there_is_no_rule_to_find() -> None:
    facts = data.facts()
    assert facts.test == facts.train
    assert len({row.answer for row in facts.train}) == len(facts.train)


def test_phase_1_holds_no_reversal_and_phase_2_nothing_else() -> None:
    rows = data.curriculum()
    border = data.PHASE_1_STEPS * data.BATCH_SIZE
    assert len(rows) == border + data.PHASE_2_STEPS * data.BATCH_SIZE
    assert not any(_is_reversal(row) for row in rows[:border])
    assert all(_is_reversal(row) for row in rows[border:])


def test_phase_1_shows_every_fact_and_a_mixture_in_every_batch() -> None:
    rows = data.curriculum()[: data.PHASE_1_STEPS * data.BATCH_SIZE]
    assert set(data.facts().train) <= set(rows)
    for start in range(0, len(rows), data.BATCH_SIZE):
        n_facts = sum(row.question.startswith("Capital") for row in rows[start : start + data.BATCH_SIZE])
        assert data.BATCH_SIZE // 4 < n_facts < data.BATCH_SIZE // 2


def test_checkpoints_fall_on_the_end_of_both_phases() -> None:
    assert data.PHASE_1_STEPS % data.SAVE_EVERY_STEPS == 0
    assert data.PHASE_2_STEPS // data.SAVE_EVERY_STEPS >= 3, "forgetting is said after three checkpoints in a row"


def test_test_files_hold_one_question_and_answer_a_line(tmp_path: Path) -> None:
    data.write_test_files(tmp_path / "data")
    for skill in SKILLS:
        lines = (tmp_path / "data" / f"{skill.name}.jsonl").read_text(encoding="utf-8").splitlines()
        assert tuple(Row(**json.loads(line)) for line in lines) == skill.test


# --- private


def _addends(row: Row) -> tuple[str, str]:
    a, b = row.question.removesuffix("=?").split("+")
    return a, b


def _is_reversal(row: Row) -> bool:
    word = row.question.removeprefix("Reverse ")
    return word != row.question and row.answer == word[::-1]
