"""When people are told, and when they are told that it is over."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eval_jobs.types import BenchmarkFailure
from tests.records import checkpoint_of, forgetting_run
from tracker.domain.alerts.rules import alert_of_acceptance, alert_of_gap, alerts_for, ended_alerts
from tracker.domain.records.alerts import Alert, AlertState, alert_subject_text
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.records.reasons import ComparedMeans, NoScatter
from tracker.domain.records.types import Gap, LatencyMethod, LatencyMetric, LatencyVerdict, Report, Verdict, VerdictWord

NOW = datetime(2026, 2, 1, tzinfo=UTC)
LOST = ComparedMeans(
    before=0.93,
    now=0.02,
    pooled=1,
    baseline_steps=(600,),
    is_peak=False,
    ci_low=-0.95,
    ci_high=-0.87,
    p=1e-9,
    never_above_chance=False,
)
SAID = "0.930 at step 600 -> 0.020; 95 % CI of the change -0.950 to -0.870, p = 1.0e-09, means only (no samples)"
W = VerdictWord
LOSS = Incident(run_id="run", suite="skills", benchmark="sums", opened_step=700, opened_digest="of it", onset_step=600)


def verdict_of(benchmark: str, word: VerdictWord, subset: str = "", measure: Measure = Measure.SCORE) -> Verdict:
    return Verdict(
        benchmark=benchmark,
        subset=subset,
        measure=measure,
        word=word,
        reason=LOST,
        score=0.5,
        stderr=None,
        coverage=1.0,
        alpha_test=0.01,
    )


def test_an_alert_whose_loss_is_over_ends_although_no_verdict_says_so() -> None:
    (begun,) = alerts_for(report_of(700, LOSS, sums=W.REGRESSED), ())
    over = replace(LOSS, closed_step=800, closed_by=Closing.ACCEPTED)
    assert list(ended_alerts([LOSS], [begun], NOW)) == []
    assert list(ended_alerts([over], [], NOW)) == []
    (ended,) = ended_alerts([over], [begun], NOW)
    assert (ended.fingerprint, ended.state, ended.step) == (begun.fingerprint, AlertState.RESOLVED, 800)
    assert ended.message == "sums: accepted at step 800"


def report_of(
    step: int, *incidents: Incident, run_id: str = "run", findings: Sequence[Verdict] = (), **words: VerdictWord
) -> Report:
    return Report(
        run_id=run_id,
        step=step,
        plan_id=f"p{step}",
        checkpoint=checkpoint_of(run_id, step),
        created_at=NOW,
        verdicts=tuple(verdict_of(name, word) for name, word in words.items()),
        findings=tuple(findings),
        incidents=incidents,
    )


def told(*reports: Report) -> list[list[str]]:
    """What is told after each report, stored as the watcher stores it."""
    stored: dict[str, Alert] = {}
    result = []
    for report in reports:
        firing = [a for a in stored.values() if a.state is AlertState.FIRING and a.run_id == report.run_id]
        alerts = alerts_for(report, firing)
        stored |= {a.fingerprint: a for a in alerts}
        result.append([f"{a.state} {a.message.split(' at step')[0]}" for a in alerts])
    return result


def ended(step: int, loss: Incident = LOSS) -> Incident:
    return replace(loss, closed_step=step, closed_by=Closing.RECOVERED, last_step=step - 200)


# --- losses


def test_a_loss_is_told_once_however_many_checkpoints_show_it() -> None:
    reports = (report_of(700, LOSS, sums=W.REGRESSED), *(report_of(s, sums=W.REGRESSED) for s in (800, 900)))
    assert told(*reports) == [["firing sums regressed"], [], []]


def test_the_message_says_what_where_and_by_how_much() -> None:
    (alert,) = alerts_for(report_of(700, LOSS, sums=W.REGRESSED), ())
    assert alert.message == f"sums regressed at step 700: {SAID}"
    assert (alert_subject_text(alert.subject), alert.step, alert.run_id, alert.raised_at) == ("sums", 700, "run", NOW)


@pytest.mark.parametrize("word", [w for w in W if w is not W.MISSING])
def test_a_word_without_an_incident_tells_nobody(word: VerdictWord) -> None:
    assert told(report_of(700, sums=word)) == [[]]


def test_a_loss_that_becomes_forgetting_is_the_same_loss() -> None:
    forgotten = replace(LOSS, forgotten=True)
    reports = (report_of(700, LOSS, sums=W.REGRESSED), report_of(900, forgotten, sums=W.FORGOTTEN))
    assert told(*reports) == [["firing sums regressed"], []]
    assert told(reports[1]) == [["firing sums forgotten"]]


def test_the_end_of_a_loss_is_told_once() -> None:
    assert told(
        report_of(700, LOSS, sums=W.REGRESSED),
        report_of(1000, ended(1000), sums=W.RECOVERED),
        report_of(1000, ended(1000), sums=W.RECOVERED),
        report_of(1100, sums=W.EQUIVALENT),
    ) == [["firing sums regressed"], ["resolved sums recovered"], [], []]


def test_the_end_of_a_loss_that_nobody_heard_of_is_not_told() -> None:
    assert told(report_of(1000, ended(1000), sums=W.RECOVERED)) == [[]]


def test_a_second_loss_is_told_again() -> None:
    second = replace(LOSS, opened_step=1500, onset_step=1500)
    assert told(
        report_of(700, LOSS, sums=W.REGRESSED),
        report_of(1000, ended(1000), sums=W.RECOVERED),
        report_of(1500, second, sums=W.REGRESSED),
    ) == [["firing sums regressed"], ["resolved sums recovered"], ["firing sums regressed"]]


def test_repeating_a_step_after_a_crash_repeats_nothing() -> None:
    report = report_of(700, LOSS, sums=W.REGRESSED)
    assert told(report, report) == [["firing sums regressed"], []]


def test_subsets_and_cut_answers_are_losses_of_their_own_and_longer_answers_tell_nobody() -> None:
    parts = (
        replace(LOSS, subset="anatomy"),
        replace(LOSS, measure=Measure.OUTPUT_LENGTH),
        replace(LOSS, measure=Measure.COMPLETENESS),
    )
    findings = [verdict_of("sums", W.REGRESSED, e.subset, e.measure) for e in parts]
    report = report_of(700, LOSS, *parts, findings=findings, sums=W.REGRESSED)
    alerts = alerts_for(report, ())
    assert [alert_subject_text(a.subject) for a in alerts] == ["sums", "sums / anatomy", "sums, truncated answers"]
    assert len({a.fingerprint for a in alerts}) == 3
    assert alerts[1].message == f"sums / anatomy regressed at step 700: {SAID}"


def test_suites_runs_and_benchmarks_are_told_apart() -> None:
    losses = (LOSS, replace(LOSS, suite="other"), replace(LOSS, run_id="b"), replace(LOSS, benchmark="facts"))
    alerts = [alerts_for(report_of(700, loss, sums=W.REGRESSED, facts=W.REGRESSED), ())[0] for loss in losses]
    assert len({a.fingerprint for a in alerts}) == 4


def test_an_accepted_level_ends_the_alert_with_its_reason() -> None:
    (fired,) = alerts_for(report_of(700, LOSS, sums=W.REGRESSED), ())
    later = datetime(2026, 2, 2, tzinfo=UTC)
    acceptance = Acceptance(
        run_id="run", step=900, benchmark="sums", from_step=600, reason="the new mix", accepted_at=later
    )
    alert = alert_of_acceptance(replace(LOSS, closed_step=900, closed_by=Closing.ACCEPTED), acceptance)
    assert alert.fingerprint == fired.fingerprint
    assert (alert.state, alert.step, alert_subject_text(alert.subject), alert.raised_at) == (
        AlertState.RESOLVED,
        900,
        "sums",
        later,
    )
    assert alert.message == "sums: score level at step 900 accepted: the new mix"


# --- blind spots


def test_a_missing_result_is_told_once_however_long_it_lasts() -> None:
    reports = [report_of(s, sums=W.MISSING) for s in (100, 200, 300)]
    assert told(*reports) == [["firing sums"], [], []]


@pytest.mark.parametrize("word", [w for w in W if w is not W.MISSING])
def test_any_result_ends_missing_even_bad_news(word: VerdictWord) -> None:
    assert told(report_of(100, sums=W.MISSING), report_of(200, sums=word)) == [
        ["firing sums"],
        ["resolved sums: result no longer missing"],
    ]


def test_a_result_that_is_missing_again_is_told_again() -> None:
    words = (W.MISSING, W.EQUIVALENT, W.MISSING)
    assert told(*(report_of(100 * i, sums=word) for i, word in enumerate(words)))[2] == ["firing sums"]


def test_a_late_report_of_an_earlier_step_resolves_nothing() -> None:
    late = told(report_of(800, sums=W.MISSING), report_of(300, sums=W.EQUIVALENT))
    assert late == [["firing sums"], []]


def test_a_blind_spot_says_nothing_about_a_loss() -> None:
    assert told(report_of(700, LOSS, sums=W.REGRESSED), report_of(800, sums=W.MISSING)) == [
        ["firing sums regressed"],
        ["firing sums"],
    ]


def test_benchmarks_and_runs_are_told_apart() -> None:
    assert told(
        report_of(1, sums=W.MISSING),
        report_of(2, sums=W.MISSING, facts=W.MISSING),
        report_of(3, run_id="other", sums=W.MISSING),
        report_of(4, run_id="other", sums=W.EQUIVALENT),
        report_of(5, sums=W.MISSING),
    ) == [
        ["firing sums"],
        ["firing facts"],
        ["firing sums"],
        ["resolved sums: result no longer missing"],
        [],
    ]


def test_a_result_that_is_missing_is_not_told_when_a_later_checkpoint_has_it() -> None:
    later = forgetting_run(checkpoints=2, samples=2, trouble=False).records[-1:]
    name = later[0].outcomes[0].benchmark
    report = replace(report_of(1), verdicts=(verdict_of(name, W.MISSING), verdict_of("other", W.MISSING)))
    assert [alert_subject_text(alert.subject) for alert in alerts_for(report, ())] == [name, "other"]
    assert [alert_subject_text(alert.subject) for alert in alerts_for(report, (), later)] == ["other"]
    failure = BenchmarkFailure(benchmark=name, fingerprint="f", code="E", message="m", hint="h", retryable=False)
    failed = [replace(later[0], outcomes=(failure,))]
    assert [alert_subject_text(alert.subject) for alert in alerts_for(report, (), failed)] == [name, "other"]


def test_open_alerts_of_another_run_are_never_resolved() -> None:
    alerts = alerts_for(report_of(1, sums=W.MISSING), ())
    assert alerts_for(report_of(2, run_id="other", sums=W.EQUIVALENT), alerts) == ()


def test_a_gap_becomes_an_alert_about_the_checkpoint() -> None:
    gap = Gap(
        run_id="run",
        step=550,
        source_uri="/out/checkpoint-550",
        code="E-CKPT-VANISHED",
        message="it was deleted before it could be pinned",
        hint="raise save_total_limit",
        seen_at=NOW,
    )
    alert = alert_of_gap(gap)
    assert alert == alert_of_gap(gap)
    assert (alert_subject_text(alert.subject), alert.step, alert.state, alert.raised_at) == (
        "checkpoint",
        550,
        AlertState.FIRING,
        NOW,
    )
    assert alert.message == (
        "checkpoint 550 will not be evaluated: it was deleted before it could be pinned (hint: raise save_total_limit)"
    )
    nameless = replace(gap, step=0, code="E-CKPT-NAMES", message="a and b have no step in their names")
    alert = alert_of_gap(nameless)
    assert alert.message.startswith("checkpoints will not be evaluated: a and b have no step in their names (hint: ")
    (end,) = alerts_for(report_of(550, sums=W.EQUIVALENT), [alert])
    assert (end.fingerprint, end.state) == (alert.fingerprint, AlertState.RESOLVED)
    assert alerts_for(report_of(550, sums=W.EQUIVALENT), [alert_of_gap(replace(gap, step=0))]) == ()


# --- latency


def latency_of(word: VerdictWord, ci_high: float | None, quantile: float = 0.5) -> LatencyVerdict:
    return LatencyVerdict(
        load="default",
        metric=LatencyMetric.TTFT,
        quantile=quantile,
        word=word,
        reason=NoScatter(),
        method=LatencyMethod.INTERLEAVED,
        ci_high=ci_high,
        alpha_test=0.001,
    )


def timed(step: int, *verdicts: LatencyVerdict) -> Report:
    return replace(report_of(step), latency=verdicts)


def test_a_slower_model_is_told_once_until_it_is_shown_to_be_no_slower() -> None:
    slower, unknown = latency_of(W.REGRESSED, 1.2), latency_of(W.INCONCLUSIVE, 1.3)
    nothing, back = latency_of(W.INCONCLUSIVE, None), latency_of(W.INCONCLUSIVE, 1.02)
    assert told(timed(100, slower), timed(200, slower), timed(300, unknown), timed(400, nothing), timed(500, back)) == [
        ["firing latency under load default"],
        [],
        [],
        [],
        ["resolved latency under load default"],
    ]


def test_a_tail_that_is_slower_is_told_as_well() -> None:
    report = timed(100, latency_of(W.INCONCLUSIVE, 1.01), latency_of(W.REGRESSED, 1.4, quantile=0.95))
    assert [alert.state for alert in alerts_for(report, ())] == [AlertState.FIRING]


def test_every_alert_that_fires_says_what_to_type_to_look_further() -> None:
    (loss,) = alerts_for(report_of(700, LOSS, sums=W.REGRESSED), ())
    gap = Gap(run_id="run a", step=700, source_uri="/out", code="E", message="m", hint="h", seen_at=NOW)
    assert loss.command == "tracker history run"  # nothing of this run was compared
    assert alert_of_gap(gap).command == "tracker history 'run a'"
