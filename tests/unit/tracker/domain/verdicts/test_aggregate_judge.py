"""A run of which only means and standard errors were imported, judged checkpoint by checkpoint by the normal judge."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from eval_jobs.types import EvalRecord
from tests.imported import fields, given, lm_eval
from tracker.domain.imports.lm_eval import sheets_of_lm_eval
from tracker.domain.imports.records import checkpoints_of
from tracker.domain.imports.types import Sheet
from tracker.domain.records.losses import Acceptance
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Verdict, VerdictWord
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

NOW = datetime(2026, 3, 2, tzinfo=UTC)
POLICY = Policy(planned_checkpoints=20, chance={"lambada": 0.0})
LEVEL = [0.60, 0.61, 0.60, 0.61, 0.60, 0.61, 0.60, 0.61, 0.60, 0.61]


def records_of(means: Sequence[float], *, stderr: object = 0.007, **more: Any) -> list[EvalRecord]:
    sheets: list[Sheet] = []
    for index, mean in enumerate(means):
        document = lm_eval({"lambada": mean}, n=5000, step=1000 * (index + 1), **more)
        document["results"]["lambada"]["acc_stderr,none"] = stderr
        sheets += sheets_of_lm_eval(fields(document), {}, given())
    return [one.record for one in checkpoints_of(sheets, run_id="run", suite="s")]


def judged(
    records: Sequence[EvalRecord], index: int = -1, run_context: RunContext | None = None, policy: Policy = POLICY
) -> Verdict:
    known = run_context or RunContext(records=tuple(records))
    (verdict,) = judge(records[index], RunScores(run_id="run"), known, policy, now=NOW).verdicts
    return verdict


def words(records: Sequence[EvalRecord]) -> list[VerdictWord]:
    return [judged(records[: i + 1]).word for i in range(len(records))]


def test_a_quiet_run_begins_with_first_and_finds_nothing() -> None:
    found = words(records_of(LEVEL))
    assert found[:2] == [VerdictWord.FIRST, VerdictWord.INCONCLUSIVE]
    assert set(found[2:]) <= {VerdictWord.INCONCLUSIVE, VerdictWord.EQUIVALENT}


def test_a_loss_is_suspect_at_most_and_says_that_samples_are_missing() -> None:
    verdict = judged(records_of([*LEVEL, 0.40, 0.40, 0.40]))
    assert (verdict.word, verdict.score, verdict.stderr) == (VerdictWord.SUSPECT, 0.40, 0.007)
    assert "0.604 at steps 1000 to 9000 -> 0.453 (mean of the newest 4)" in reason_text(verdict)
    assert "means only (no samples)" in reason_text(verdict)
    assert verdict.comparisons == ()


def test_a_rise_is_improved() -> None:
    assert judged(records_of([*LEVEL, 0.80, 0.80, 0.80])).word is VerdictWord.IMPROVED


def test_less_may_be_better() -> None:
    worse = records_of([*LEVEL, 0.80, 0.80, 0.80], higher_is_better={"lambada": {"acc": False}})
    verdict = judged(worse, policy=replace(POLICY, chance={"lambada": 1.0}))
    assert (verdict.word, verdict.score) == (VerdictWord.SUSPECT, 0.80)


def test_what_has_not_left_chance_is_not_learned() -> None:
    guessing = replace(POLICY, chance={"lambada": 0.6})
    for records in (records_of(LEVEL), records_of([*LEVEL, 0.50, 0.50])):
        verdict = judged(records, policy=guessing)
        assert verdict.word is VerdictWord.NOT_LEARNED
        assert reason_text(verdict) == "never clearly better than guessing (score 0.6)"
    assert judged(records_of([*LEVEL, 0.80, 0.80]), policy=guessing).word is VerdictWord.IMPROVED


def test_only_lower_steps_count() -> None:
    records = records_of([*LEVEL, 0.40, 0.40, 0.40])
    assert judged(records, index=9).word == judged(records[:10]).word


def test_no_loss_of_means_opens_an_incident() -> None:
    records = records_of([*LEVEL, 0.40, 0.40, 0.40])
    assert not judge(
        records[-1], RunScores(run_id="run"), RunContext(records=tuple(records)), POLICY, now=NOW
    ).incidents


def test_results_measured_in_another_way_are_not_compared() -> None:
    before = records_of(LEVEL[:3])
    (after,) = records_of([0.3], versions={"lambada": 2.0})[-1:]
    moved = records_of([*LEVEL[:3], 0.3], versions={"lambada": 2.0})[-1]
    verdict = judged([*before, moved])
    assert verdict.word is VerdictWord.INCOMPARABLE
    assert "task_version is 2.0, was 1.0" in reason_text(verdict)
    assert after.plan.checkpoint.step == 1000


def test_an_error_that_is_not_known_makes_no_verdict() -> None:
    records = records_of(LEVEL[:4], stderr="N/A", **{"n-samples": {}})
    verdict = judged(records)
    assert (verdict.word, reason_text(verdict)) == (VerdictWord.INCONCLUSIVE, "standard errors are missing or 0")


def test_a_run_that_begins_at_nothing_has_a_first_result() -> None:
    assert words(records_of([0.0, 0.0, 0.3], stderr=0.0))[0] is VerdictWord.FIRST


def test_a_level_that_was_accepted_is_the_new_normal() -> None:
    records = records_of([*LEVEL, 0.40, 0.40, 0.40])
    accepted = Acceptance(
        run_id="run", step=11000, benchmark="lambada", from_step=11000, reason="on purpose", accepted_at=NOW
    )
    verdict = judged(records, run_context=RunContext(records=tuple(records), acceptances=(accepted,)))
    assert verdict.word is not VerdictWord.SUSPECT


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_value_that_is_missing_in_the_file_is_missing_in_the_verdict(value: float | None) -> None:
    document = lm_eval({"lambada": 0.5}, step=9000)
    document["results"]["lambada"]["acc,none"] = value
    sheets = sheets_of_lm_eval(fields(document), {}, given())
    record = checkpoints_of(sheets, run_id="run", suite="s")[0].record
    verdict = judged([record])
    assert (verdict.word, verdict.score) == (VerdictWord.MISSING, None)
