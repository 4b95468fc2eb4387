"""Runs whose training goes back: what the new branch is judged by, and what becomes of the losses of the old one."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from eval_jobs.types import EvalRecord
from tests.unit.tracker.domain.judging import NOW, remembering, right, scores_of
from tests.unit.tracker.domain.making import record_of
from tracker.domain.alerts.rules import alerts_for
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.losses import Closing
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report, VerdictWord
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.rewind import left_behind

POLICY = Policy(planned_checkpoints=40)
START = datetime(2026, 1, 1, tzinfo=UTC)
GOOD, BAD = 180, 90


def tried(name: str, steps: Iterable[int], count: int, *, minute: float) -> list[EvalRecord]:
    """Return the records of one try, saved one a minute from `minute` on: a constant score, and a little jitter."""
    return [
        record_of(
            step,
            {"sums": right(count + i % 3)},
            digest=f"{name}-{step}",
            finished_after_s=60.0 * (minute + i) + 30.0,
            ready_at=START + timedelta(minutes=minute + i),
        )
        for i, step in enumerate(steps)
    ]


@dataclass
class Followed:
    """A run that is judged as records come, as `tracker.app.review.review` does."""

    records: list[EvalRecord] = field(default_factory=list)
    run_context: RunContext = field(default_factory=RunContext)
    reports: list[Report] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)

    def take(self, *records: EvalRecord) -> Report:
        """Judge records one after the other and return the last report."""
        for record in records:
            self.records = [r for r in self.records if r.plan.id != record.plan.id] + [record]
            self.run_context = replace(self.run_context, records=tuple(self.records))
            report = judge(record, scores_of(self.records), self.run_context, POLICY, now=NOW)
            self.run_context = remembering(self.run_context, report)
            self.alerts += alerts_for(report, self.firing())
            self.reports.append(report)
        return self.reports[-1]

    def firing(self) -> list[Alert]:
        newest = {a.fingerprint: a for a in self.alerts}
        return [a for a in newest.values() if a.state is AlertState.FIRING]

    def losses(self) -> list[tuple[int, int | None, Closing | None]]:
        return [(e.opened_step, e.closed_step, e.closed_by) for e in self.run_context.incidents]


def first_try() -> list[EvalRecord]:
    """Return 12 good checkpoints and 4 bad ones, from 1300 on."""
    return [
        *tried("a", range(100, 1300, 100), GOOD, minute=0),
        *tried("a", range(1300, 1700, 100), BAD, minute=12),
    ]


def again(steps: Iterable[int], count: int) -> list[EvalRecord]:
    return tried("b", steps, count, minute=100)


def steps_of(report: Report) -> set[int]:
    return {step for c in report.verdicts[0].comparisons for step in (*c.baseline_steps, *c.pooled_steps)}


def test_a_loss_of_the_branch_that_was_left_ends_with_it_and_its_alert_too() -> None:
    run = Followed()
    run.take(*first_try())
    assert run.losses() == [(1300, None, None)]
    assert len(run.firing()) == 1
    report = run.take(*again([1200], GOOD))
    assert run.losses() == [(1300, 1200, Closing.SUPERSEDED)]
    assert run.firing() == []
    assert "training restarted from a step before 1200" in run.alerts[-1].message
    assert report.verdicts[0].word is VerdictWord.EQUIVALENT or report.verdicts[0].word is VerdictWord.INCONCLUSIVE


def test_the_new_branch_is_judged_by_its_own_past() -> None:
    run = Followed()
    run.take(*first_try())
    for record in again(range(1200, 1900, 100), GOOD):
        report = run.take(record)
        assert report.verdicts[0].word not in (VerdictWord.REGRESSED, VerdictWord.RECOVERED, VerdictWord.FORGOTTEN)
    assert run.firing() == []


def test_checkpoints_that_were_left_are_no_past_although_nothing_replaced_them() -> None:
    run = Followed()
    run.take(*first_try())
    run.take(*again([1200], GOOD))
    report = run.take(*tried("b", [1700], GOOD, minute=110))  # 1300 to 1600 failed or were not saved this time
    assert steps_of(report) & {1300, 1400, 1500, 1600} == set()
    assert report.verdicts[0].word is not VerdictWord.RECOVERED


def test_a_loss_on_the_new_branch_at_the_same_step_is_told_again() -> None:
    run = Followed()
    run.take(*first_try())
    run.take(*again([1200], GOOD))
    report = run.take(*tried("b", [1300], BAD, minute=110))
    assert report.verdicts[0].word is VerdictWord.REGRESSED
    assert run.losses() == [(1300, None, None)]
    assert run.run_context.incidents[0].opened_digest == "b-1300"
    assert [a.state for a in run.alerts] == [AlertState.FIRING, AlertState.RESOLVED, AlertState.FIRING]


def test_a_loss_from_before_the_rewind_goes_on() -> None:
    run = Followed()
    run.take(*first_try())
    run.take(*again([1500, 1600], BAD))
    assert run.losses() == [(1300, None, None)]
    assert len(run.firing()) == 1


def test_a_recovery_that_was_left_behind_is_taken_back() -> None:
    run = Followed()
    run.take(*first_try(), *tried("a", range(1700, 2000, 100), GOOD, minute=20))
    assert [e[2] for e in run.losses()] == [Closing.RECOVERED]
    assert run.firing() == []
    run.take(*again([1600], BAD))
    assert run.losses() == [(1300, None, None)]
    assert len(run.firing()) == 1


def test_a_left_checkpoint_that_is_measured_late_is_judged_among_its_own_and_changes_nothing() -> None:
    run = Followed()
    early, late = first_try()[:-1], first_try()[-1]
    run.take(*early)
    run.take(*again([1200, 1300, 1400, 1500, 1600], GOOD))
    before = run.losses(), len(run.alerts)
    report = run.take(replace(late, finished_at=late.finished_at + timedelta(days=1)))
    assert report.verdicts[0].word in (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN)
    assert report.verdicts[0].score is not None
    assert report.verdicts[0].score < 0.5, "its own score, not that of the checkpoint that took its place"
    assert (run.losses(), len(run.alerts)) == before
    newest = run.take(*tried("b", [1700], GOOD, minute=120))
    assert newest.verdicts[0].word not in (VerdictWord.REGRESSED, VerdictWord.SUSPECT)


def test_what_was_left_behind_is_known_from_the_first_checkpoint_that_was_written_again() -> None:
    first, (rewritten,) = first_try(), again([1200], GOOD)
    assert left_behind(first[-1], RunContext(records=tuple(first[:-1]))) == ()
    left = left_behind(rewritten, RunContext(records=tuple(first)))
    assert [(c.step, c.digest) for c in left] == [(step, f"a-{step}") for step in range(1200, 1700, 100)]


def test_judging_anything_again_after_a_crash_changes_nothing() -> None:
    run = Followed()
    everything = [*first_try(), *again([1200, 1300, 1400], GOOD)]
    run.take(*everything)
    before = run.losses()
    for record in everything[-4:]:
        run.take(record)
        assert run.losses() == before
    assert run.firing() == []


def test_whichever_of_the_new_branch_is_measured_first_the_old_loss_ends() -> None:
    for order in ([1300, 1200], [1400, 1300, 1200]):
        run = Followed()
        run.take(*first_try())
        by_step = {r.plan.checkpoint.step: r for r in again(sorted(order), GOOD)}
        run.take(*(by_step[step] for step in order))
        # Until training is known to have gone back, 1400 shows that it is over.
        ends = {1300: (1300, Closing.SUPERSEDED), 1400: (1400, Closing.TRANSIENT)}
        assert run.losses() == [(1300, *ends[order[0]])]
        assert run.firing() == []
