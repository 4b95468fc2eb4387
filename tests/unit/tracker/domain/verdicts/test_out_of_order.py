from dataclasses import replace
from datetime import UTC, datetime, timedelta

from eval_jobs.types import EvalRecord
from tests.records import checkpoint_of, forgetting_run
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.reasons import Failed
from tracker.domain.records.types import Report, Verdict, VerdictWord
from tracker.domain.verdicts.out_of_order import NEAREST, overtaken_by, rejudged, with_changes, withdrawn

RECORDS = forgetting_run(checkpoints=16, samples=2, trouble=False).records
NOW = datetime(2026, 3, 14, tzinfo=UTC)


def steps(found: tuple[EvalRecord, ...]) -> list[int]:
    return [record.plan.checkpoint.step for record in found]


def test_the_nearest_successors_and_the_newest_are_looked_at_again() -> None:
    every = steps(RECORDS)
    assert steps(overtaken_by(RECORDS[14], RECORDS)) == every[15:]
    assert steps(overtaken_by(RECORDS[4], RECORDS)) == every[5:]
    assert steps(overtaken_by(RECORDS[0], RECORDS[::-1])) == [*every[1 : 1 + NEAREST], every[-1]]


def test_the_newest_checkpoint_has_overtaken_nobody() -> None:
    assert overtaken_by(RECORDS[-1], RECORDS) == ()
    assert overtaken_by(RECORDS[-1], ()) == ()


def test_another_suite_has_a_past_of_its_own() -> None:
    plan = RECORDS[-1].plan
    other = replace(RECORDS[-1], plan=replace(plan, suite=replace(plan.suite, name="other")))
    assert overtaken_by(RECORDS[-2], (other,)) == ()


def test_of_a_step_that_was_measured_twice_the_newer_result_counts() -> None:
    newer = replace(RECORDS[-1], finished_at=RECORDS[-1].finished_at + timedelta(hours=1))
    assert overtaken_by(RECORDS[-2], (newer, RECORDS[-1])) == (newer,)


def test_what_was_trained_before_the_run_went_back_is_not_overtaken() -> None:
    plan = RECORDS[3].plan
    written = RECORDS[-1].plan.checkpoint.ready_at + timedelta(hours=1)
    again = replace(plan.checkpoint, ready_at=written, digest="f" * 64)
    rewound = replace(RECORDS[3], plan=replace(plan, id="again", checkpoint=again))
    assert overtaken_by(rewound, RECORDS) == ()
    assert len(overtaken_by(RECORDS[3], RECORDS)) > 1


def verdict(benchmark: str, word: VerdictWord) -> Verdict:
    return Verdict(
        benchmark=benchmark,
        word=word,
        reason=Failed(message=word),
        score=None,
        stderr=None,
        coverage=0.0,
        alpha_test=0.0,
    )


def test_what_is_missing_stays_missing_for_the_same_reason() -> None:
    before = Report(
        run_id="run",
        step=1,
        plan_id="p",
        verdicts=(verdict("a", VerdictWord.MISSING), verdict("b", VerdictWord.FIRST)),
        checkpoint=checkpoint_of("run", 1),
        created_at=NOW,
    )
    found = (
        replace(verdict("a", VerdictWord.MISSING), reason=Failed(message="made without samples")),
        verdict("b", VerdictWord.REGRESSED),
    )
    after = rejudged(before, replace(before, verdicts=found, created_at=NOW + timedelta(1)))
    assert [v.reason for v in after.verdicts] == [Failed(message="missing"), Failed(message="regressed")]
    assert after.created_at == NOW + timedelta(1)


def test_a_loss_that_no_verdict_shows_ends_as_corrected_once() -> None:
    report = replace(forgetting_run(trouble=False).reports[6], step=700, verdicts=(), findings=())
    loss = Incident(
        run_id=report.run_id,
        suite="skills",
        benchmark="facts",
        opened_step=700,
        onset_step=700,
        opened_digest="of it",
        series=("its settings",),
    )
    own = [{"facts": "its settings"}]
    (corrected,) = withdrawn([loss], [report], own)
    assert (corrected.closed_by, corrected.closed_step) == (Closing.CORRECTED, 700)
    assert withdrawn([corrected], [report], own) == ()
    assert with_changes([loss, replace(loss, opened_step=600)], [corrected])[-1] == corrected
    shown = replace(report, incidents=(loss,), verdicts=(_verdict(VerdictWord.REGRESSED, 700),))
    assert withdrawn([loss], [shown], own) == ()
    assert withdrawn([loss], [replace(shown, verdicts=(_verdict(VerdictWord.REGRESSED, 400),))], own) != ()
    assert withdrawn([replace(loss, opened_step=600)], [report], own) == ()
    assert withdrawn([loss], [report], [{"facts": "other settings"}]) == ()
    assert withdrawn([loss], [report], [{"sums": "its settings"}]) == ()


def _verdict(word: VerdictWord, lost_since: int) -> Verdict:
    return Verdict(
        benchmark="facts",
        word=word,
        reason=None,
        score=0.0,
        stderr=None,
        coverage=1.0,
        alpha_test=0.01,
        lost_since=lost_since,
    )
