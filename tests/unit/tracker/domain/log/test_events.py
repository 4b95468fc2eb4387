"""Each event is one bounded line that says what changed, from what, to what and why."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests import alerts
from tests.records import RUN, forgetting_run, wide_run
from tracker.domain.log.events import (
    CHARS,
    EventKind,
    RunEvent,
    acceptance_event,
    alert_events,
    evaluation_event,
    event_text,
    found,
    run_event,
    unevaluated,
    verdict_changes,
)
from tracker.domain.records.alerts import AlertState
from tracker.domain.records.losses import Acceptance
from tracker.domain.records.types import VerdictWord

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RECORDED = forgetting_run(checkpoints=8, samples=20)
RECORD, REPORT = RECORDED.records[6], RECORDED.reports[6]
GAP = RECORDED.gaps[0]
ACCEPTANCE = Acceptance(
    run_id=RUN, step=800, benchmark="sums", from_step=700, reason="the data\nchanged", accepted_at=NOW
)
FIRING = alerts.alert(step=700, state=AlertState.FIRING, run_id=RUN)


def setting(**texts: str) -> RunEvent:
    return run_event(EventKind.SETTING, (RUN, None, NOW), **texts)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (found(RECORD.plan.checkpoint, NOW), RECORD.plan.checkpoint.source_uri),
        (unevaluated(GAP), f"{GAP.message} ({GAP.code})"),
        (
            unevaluated(replace(GAP, step=10, last_step=30, count=3)),
            f"steps 10 to 30: {GAP.message} ({GAP.code})",
        ),
        (acceptance_event(ACCEPTANCE), "sums: new baseline (the data changed)"),
        (setting(subject="suite.max_tokens", before="8", after="16"), "suite.max_tokens: 8 → 16"),
        (setting(reason="process 7 on host"), "process 7 on host"),
        (alert_events(FIRING, None)[0], FIRING.message),
    ],
)
def test_an_event_is_one_sentence(event: RunEvent, said: str) -> None:
    assert event_text(event) == said


def test_an_evaluation_names_its_worst_verdicts_first_and_counts_the_others() -> None:
    first = evaluation_event(RECORDED.records[0], RECORDED.reports[0])
    assert (first.kind, first.step, event_text(first)) == (
        EventKind.EVALUATED,
        100,
        "facts 0.000 first, sums 0.000 first and reversal 0.100 first",
    )
    many = wide_run()
    report = many.reports[-1]
    words = [*report.verdicts, *report.findings]
    text = event_text(evaluation_event(many.records[-1], report))
    assert text.endswith(f" and {len(words) - 5} more")
    assert len(text) < 2 * CHARS
    worst = min((one.word for one in words), key=list(VerdictWord).index)
    assert text.partition(",")[0].endswith(f" {worst}")


def test_a_late_checkpoint_and_an_acceptance_are_named_as_the_cause_of_other_verdicts() -> None:
    other = replace(REPORT, verdicts=tuple(replace(one, word=VerdictWord.RISING) for one in REPORT.verdicts[:2]))
    late = evaluation_event(RECORDED.records[2], RECORDED.reports[2])
    changes = list(verdict_changes(REPORT, other, late))
    assert [(one.step, event_text(one)) for one in changes] == [
        (700, f"{one.benchmark}: {one.word} → rising (step 300 was evaluated)") for one in REPORT.verdicts[:2]
    ]
    assert event_text(next(verdict_changes(REPORT, other, acceptance_event(ACCEPTANCE)))).endswith(
        "rising (sums was accepted at step 800)"
    )
    assert list(verdict_changes(REPORT, REPORT, late)) == []
    again = verdict_changes(REPORT, replace(other, created_at=NOW), replace(late, at=NOW))
    assert [one.key for one in again] == [one.key for one in changes], "a kill in between repeats it"


def test_texts_of_others_stay_short_and_on_one_line() -> None:
    event = setting(subject="a\nb\x1b[31m", before="x" * 10_000)
    assert "\x1b" not in event_text(event)
    assert "\n" not in event_text(event)
    assert len(event.before) < 2 * CHARS
