"""Answers as texts may be forgotten, scores may not: the rules of `ports.History`, over the fake and both databases."""

from dataclasses import replace
from datetime import timedelta

from eval_jobs.types import EvalResult
from tests.contract.conftest import ReopenHistory
from tests.records import RUN, forgetting_run
from tests.score_tables import table_of

RECORDS = forgetting_run(checkpoints=4, samples=6, trouble=False).records


def test_answers_can_be_forgotten_and_scores_stay(reopen_history: ReopenHistory) -> None:
    history = reopen_history()
    for record in RECORDS[:2]:
        history.append(record)
    first, second = (record.plan.id for record in RECORDS[:2])
    before = table_of(history.scores(RUN))
    assert set(history.texts(RUN)) == {first, second}
    assert all(size > 0 for size in history.texts(RUN).values())
    for handle in (history, reopen_history()):  # twice is once
        handle.forget_texts(first)
        assert set(handle.texts(RUN)) == {second}
    bare = reopen_history().record(first)
    assert bare is not None
    assert [r.has_texts for r in bare.outcomes if isinstance(r, EvalResult)] == [False] * 3
    samples = [s for r in bare.outcomes if isinstance(r, EvalResult) for s in r.samples]
    asked = [s for r in RECORDS[0].outcomes if isinstance(r, EvalResult) for s in r.samples]
    assert [replace(s, answer="", detail="") for s in asked] == samples
    assert table_of(reopen_history().scores(RUN)) == before
    assert reopen_history().record(second) == RECORDS[1]


def test_forgetting_what_is_not_there_changes_nothing(reopen_history: ReopenHistory) -> None:
    history = reopen_history()
    history.forget_texts("nobody")
    assert history.texts(RUN) == {}


def test_a_plan_that_is_evaluated_again_has_its_answers_again(reopen_history: ReopenHistory) -> None:
    history = reopen_history()
    history.append(RECORDS[0])
    history.forget_texts(RECORDS[0].plan.id)
    again = replace(RECORDS[0], finished_at=RECORDS[0].finished_at + timedelta(seconds=5))
    history.append(again)
    assert reopen_history().record(again.plan.id) == again
