"""What an alert carries beside its sentence: numbers, a few lost questions, a command; and what cannot stop it."""

import logging
from collections.abc import Collection
from dataclasses import replace

import pytest

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tests import alerts
from tests.fakes.alerting import FakeAlerting
from tests.fakes.history import FakeHistory
from tests.records import forgetting_run
from tracker.app.steps.alerting import AlertDispatcher
from tracker.domain.alerts.evidence import comparing, evidence_of_loss
from tracker.domain.records.alerts import (
    Alert,
    AlertEvidence,
    AlertKind,
    AlertState,
    AlertSubject,
    SubjectKind,
    alert_subject_text,
)
from tracker.domain.records.losses import Drop, Incident

RUN = forgetting_run(trouble=False)
BEFORE, AFTER = RUN.records[5], RUN.records[6]
"""Steps 600 and 700: `facts` is lost in between."""


def loss(benchmark: str = "facts", subset: str = "", **changes: object) -> Alert:
    evidence = AlertEvidence(score=0.0, change=-0.9, baseline_steps=(500, 600), n_common=40, n_lost=36)
    alert = replace(
        alerts.alert(benchmark, 700, run_id=RUN.run_id),
        subject=AlertSubject(kind=SubjectKind.BENCHMARK, name=benchmark, subset=subset),
        message="facts regressed",
        evidence=evidence,
        raised_at=AFTER.finished_at,
    )
    return replace(alert, **changes)  # type: ignore[arg-type]


def told(alert: Alert, *, samples: int = 3, history: FakeHistory | None = None) -> tuple[str, ...]:
    """Return the lost questions that people are shown."""
    kept, alerting = history or FakeHistory(), FakeAlerting()
    for record in (BEFORE, AFTER):
        kept.append(record)
    AlertDispatcher(alerts=kept, records=kept, alerting=alerting, samples=samples).dispatch([alert], AFTER)
    (one,) = alerting.alerts
    return one.evidence.lost_samples if one.evidence is not None else ()


def result_of(record: EvalRecord, benchmark: str) -> EvalResult:
    return next(o for o in record.outcomes if isinstance(o, EvalResult) and o.benchmark == benchmark)


def lost(benchmark: str, subset: str = "") -> set[str]:
    """Return the questions that were right at step 600 and are wrong at step 700."""

    def right(record: EvalRecord) -> dict[str, SampleScore]:
        samples = result_of(record, benchmark).samples
        return {s.sample_id: s for s in samples if s.score and subset in ("", s.subset)}

    now = right(AFTER)
    return {sample.prompt for key, sample in right(BEFORE).items() if key not in now}


def test_a_loss_shows_a_few_questions_that_were_right_before() -> None:
    shown = told(loss())
    assert len(shown) == 3
    assert set(shown) <= lost("facts")


def test_a_loss_of_a_subset_shows_questions_of_that_subset() -> None:
    subset = result_of(BEFORE, "facts").samples[0].subset
    shown = told(loss(subset=subset), samples=10)
    assert shown
    assert set(shown) <= lost("facts", subset)


def test_nobody_is_shown_questions_who_does_not_want_them_or_where_none_was_lost() -> None:
    evidence = loss().evidence
    assert evidence is not None
    assert told(loss(), samples=0) == ()
    assert told(loss(evidence=replace(evidence, n_lost=0))) == ()
    assert told(loss(evidence=replace(evidence, baseline_steps=()))) == ()
    assert told(loss(evidence=replace(evidence, baseline_steps=(12,)))) == ()
    assert told(loss(kind=AlertKind.MISSING)) == ()


def test_samples_that_are_gone_keep_nobody_from_being_told() -> None:
    class Damaged(FakeHistory):
        def record(self, plan_id: str, benchmarks: Collection[str] | None = None) -> EvalRecord | None:
            raise StoreError(f"the samples of {plan_id}, {benchmarks} are damaged", hint="restore them")

    history = Damaged()
    assert told(loss(), history=history) == ()
    assert [alert_subject_text(a.subject) for a in history.open_alerts(RUN.run_id)] == ["facts"]


@pytest.mark.parametrize("kind", AlertKind)
def test_only_alerts_whose_cause_no_command_prints_are_warnings_in_the_log(
    kind: AlertKind, caplog: pytest.LogCaptureFixture
) -> None:
    told(loss(kind=kind))
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    of_training = {AlertKind.CRASH, AlertKind.HANG, AlertKind.DIVERGED, AlertKind.FAULT, AlertKind.ANOMALY}
    assert len(warnings) == (kind in {AlertKind.OVERDUE, AlertKind.STUCK, AlertKind.UNSENT} | of_training)


def test_the_log_shows_the_line_of_the_trainer_and_the_end(caplog: pytest.LogCaptureFixture) -> None:
    failed = loss(kind=AlertKind.CRASH, evidence=AlertEvidence(lines=("ValueError: bad batch", "KeyError: 1")))
    history = FakeHistory()
    dispatcher = AlertDispatcher(alerts=history, records=history, alerting=FakeAlerting())
    dispatcher.dispatch([failed, replace(failed, state=AlertState.RESOLVED, message="over")])
    first, second = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert first.endswith(f"{failed.message}: ValueError: bad batch")
    assert second.endswith(": over")


def incident(**drop: object) -> Incident:
    found = Drop(
        baseline_steps=(500, 600),
        before=0.9,
        newest_steps=(700, 800),
        now=0.5,
        delta=-0.4,
        ci_low=-0.6,
        ci_high=-0.2,
        n_common=40,
        n_lost=18,
        n_gained=2,
    )
    return Incident(
        run_id="run a",
        suite="skills",
        benchmark="facts",
        opened_step=800,
        onset_step=700,
        opened_digest="",
        drop=replace(found, **drop),  # type: ignore[arg-type]
    )


def test_the_numbers_are_those_of_the_loss_and_the_command_compares_its_two_sides() -> None:
    assert evidence_of_loss(incident(), (300,)) == AlertEvidence(
        score=0.5,
        change=-0.4,
        ci_low=-0.6,
        ci_high=-0.2,
        before=0.9,
        baseline_steps=(500, 600),
        onset_step=700,
        pending_steps=(300,),
        n_common=40,
        n_lost=18,
        n_gained=2,
    )
    assert comparing(incident()) == "tracker compare 'run a@600' 'run a@800'"


def test_a_baseline_of_another_run_is_no_step_of_this_one() -> None:
    assert evidence_of_loss(incident(is_pinned=True)).baseline_steps == ()
    for other in (incident(is_pinned=True), replace(incident(), drop=None)):
        assert comparing(other) == "tracker history 'run a'"
