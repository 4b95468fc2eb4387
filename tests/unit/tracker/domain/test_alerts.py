"""When people are told, and when they are told that it is over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from tracker.domain.alerts import alert_of_gap, alerts_for
from tracker.domain.types import Alert, AlertState, Gap, Report, Verdict, VerdictWord

NOW = datetime(2026, 2, 1, tzinfo=UTC)
W = VerdictWord


def report_of(step: int, run_id: str = "run", **words: VerdictWord) -> Report:
    return Report(
        run_id=run_id,
        step=step,
        plan_id=f"p{step}",
        created_at=NOW,
        verdicts=tuple(
            Verdict(
                benchmark=name,
                word=word,
                reason="0.93 -> 0.02 since step 600",
                score=0.5,
                stderr=None,
                coverage=1.0,
                comparisons=(),
                alpha_test=0.01,
                mde=None,
            )
            for name, word in words.items()
        ),
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


def run(*words: VerdictWord) -> Sequence[list[str]]:
    return told(*(report_of(100 * i, sums=word) for i, word in enumerate(words, start=1)))


@pytest.mark.parametrize("word", [W.REGRESSED, W.FORGOTTEN, W.MISSING])
def test_a_cause_fires_once_however_long_it_lasts(word: VerdictWord) -> None:
    assert run(word, word, word) == [[f"firing sums {word}"], [], []]


@pytest.mark.parametrize("word", [w for w in W if w not in (W.REGRESSED, W.FORGOTTEN, W.MISSING)])
def test_other_words_tell_nobody(word: VerdictWord) -> None:
    assert run(word) == [[]]


def test_the_message_says_what_where_and_by_how_much() -> None:
    (alert,) = alerts_for(report_of(700, sums=W.REGRESSED), ())
    assert alert.message == "sums regressed at step 700: 0.93 -> 0.02 since step 600"
    assert (alert.subject, alert.step, alert.run_id, alert.raised_at) == ("sums", 700, "run", NOW)


def test_a_regression_that_becomes_forgetting_fires_once_more() -> None:
    assert run(W.REGRESSED, W.REGRESSED, W.FORGOTTEN, W.FORGOTTEN) == [
        ["firing sums regressed"],
        [],
        ["firing sums forgotten"],
        [],
    ]


def test_what_is_forgotten_is_not_announced_again_as_regressed() -> None:
    assert run(W.FORGOTTEN, W.REGRESSED) == [["firing sums forgotten"], []]


@pytest.mark.parametrize("word", [W.IMPROVED, W.EQUIVALENT, W.INCONCLUSIVE, W.SUSPECT])
def test_a_loss_that_is_gone_is_resolved_once(word: VerdictWord) -> None:
    assert run(W.REGRESSED, word, word) == [["firing sums regressed"], ["resolved sums no longer regressed"], []]


def test_recovery_resolves_every_step_of_the_escalation() -> None:
    *_, last = run(W.REGRESSED, W.FORGOTTEN, W.IMPROVED)
    assert last == ["resolved sums no longer regressed", "resolved sums no longer forgotten"]


def test_a_cause_that_comes_back_fires_again() -> None:
    assert run(W.REGRESSED, W.EQUIVALENT, W.REGRESSED)[2] == ["firing sums regressed"]


@pytest.mark.parametrize("word", [W.MISSING, W.INCOMPARABLE])
def test_a_blind_spot_says_nothing_about_a_regression(word: VerdictWord) -> None:
    assert not any("no longer regressed" in text for text in run(W.REGRESSED, word)[1])


def test_a_result_resolves_missing_even_when_it_is_bad_news() -> None:
    assert run(W.MISSING, W.REGRESSED)[1] == ["firing sums regressed", "resolved sums no longer missing"]
    assert run(W.MISSING, W.INCOMPARABLE)[1] == ["resolved sums no longer missing"]


def test_a_late_report_of_an_earlier_step_resolves_nothing() -> None:
    assert told(report_of(800, sums=W.REGRESSED), report_of(300, sums=W.EQUIVALENT)) == [["firing sums regressed"], []]


def test_benchmarks_and_runs_are_told_apart() -> None:
    assert told(
        report_of(1, sums=W.REGRESSED),
        report_of(2, sums=W.REGRESSED, facts=W.REGRESSED),
        report_of(3, run_id="other", sums=W.REGRESSED),
        report_of(4, run_id="other", sums=W.EQUIVALENT),
        report_of(5, sums=W.REGRESSED),
    ) == [
        ["firing sums regressed"],
        ["firing facts regressed"],
        ["firing sums regressed"],
        ["resolved sums no longer regressed"],
        [],
    ]


def test_open_alerts_of_another_run_are_never_resolved() -> None:
    alerts = alerts_for(report_of(1, sums=W.REGRESSED), ())
    assert alerts_for(report_of(2, run_id="other", sums=W.EQUIVALENT), alerts) == ()


def test_a_gap_becomes_an_alert_about_the_checkpoint() -> None:
    gap = Gap(
        run_id="run",
        step=550,
        source_uri="/out/checkpoint-550",
        code="E-CKPT-VANISHED",
        message="/out/checkpoint-550 was deleted before it could be pinned",
        hint="raise save_total_limit",
        seen_at=NOW,
    )
    alert = alert_of_gap(gap)
    assert alert == alert_of_gap(gap)
    assert (alert.subject, alert.step, alert.state, alert.raised_at) == ("checkpoint", 550, AlertState.FIRING, NOW)
    assert alert.message == (
        "checkpoint 550 will not be evaluated: /out/checkpoint-550 was deleted before it could be pinned"
        " (raise save_total_limit)"
    )
