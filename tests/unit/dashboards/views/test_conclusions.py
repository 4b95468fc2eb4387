from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from dashboards.data.run import Conclusions
from dashboards.views.conclusions import LossRow, finding_rows, loss_rows
from tests.alerts import alert
from tests.judged_run import judged_run
from tests.records import forgetting_run
from tracker.domain.alerts.rules import CHECKPOINT
from tracker.domain.overview.run import overview
from tracker.domain.records.alerts import Alert
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.scores.series_changes import SeriesChange

RUN = judged_run()
ACCEPTED = "accepted on 2026-03-15: the data mix changed on purpose"


def rows_of(
    incidents: Iterable[Incident], acceptances: Iterable[Acceptance] = (), alerts: Iterable[Alert] = ()
) -> tuple[LossRow, ...]:
    known = Conclusions(reports=(), incidents=tuple(incidents), acceptances=tuple(acceptances), alerts=tuple(alerts))
    return loss_rows(known)


def test_every_loss_says_when_it_began_where_it_was_found_and_how_it_ended() -> None:
    rows = rows_of(RUN.incidents, RUN.acceptances)
    assert [(r.onset, r.opened, r.subject, r.word or "", r.ended) for r in rows] == [
        (700, 700, "facts", "forgotten", "open"),
        (700, 800, "sums, output length", "regressed", "open (longer answers raise no alert)"),
        (600, 700, "trivia / history", "regressed", "open"),
        (700, 700, "sums", "regressed", f"score level at step 800 {ACCEPTED}"),
        (400, 500, "trivia", "regressed", "recovered at step 1000, last worse than the baseline at step 800"),
        (300, None, "reversal", "", f"score level at step 300 {ACCEPTED}"),
    ]


def test_a_loss_that_all_benchmarks_share_names_their_alert() -> None:
    (facts,) = (e for e in RUN.incidents if e.benchmark == "facts")
    both = (facts, replace(facts, benchmark="", onset_step=800))
    of_all = replace(alert(), subject=CHECKPOINT)
    assert [row.ended for row in rows_of(both, (), [of_all])] == [
        "open",
        "open (part of the alert for all benchmarks)",
    ]
    assert [row.ended for row in rows_of(both, (), [alert()])] == ["open", "open"]


def test_a_loss_that_was_found_with_other_settings_names_its_series() -> None:
    (facts,) = (e for e in RUN.incidents if e.benchmark == "facts")
    change = SeriesChange(
        run_id=facts.run_id,
        suite=facts.suite,
        benchmark="facts",
        at=RUN.reports[0].created_at,
        step=700,
        number=2,
        settings="other",
    )
    both = (facts, replace(facts, opened_step=800, series=("other",)))
    rows = loss_rows(Conclusions(reports=(), incidents=both, changes=(change,)))
    assert [row.subject for row in rows] == ["facts", "facts, series 2"]


def test_one_acceptance_that_ends_two_losses_is_no_row_of_its_own() -> None:
    (sums,) = (e for e in RUN.incidents if e.closed_by is Closing.ACCEPTED)
    rows = rows_of((sums, replace(sums, subset="easy")), RUN.acceptances[:1])
    assert [(r.subject, r.ended[:22]) for r in rows] == [
        ("sums", "score level at step 80"),
        ("sums / easy", "score level at step 80"),
    ]


def test_a_loss_whose_acceptance_is_not_at_hand_still_says_how_it_ended() -> None:
    rows = rows_of([e for e in RUN.incidents if e.closed_by is Closing.ACCEPTED], ())
    assert [r.ended for r in rows] == ["accepted at step 800"]


def test_a_reason_can_neither_break_lines_nor_control_a_display() -> None:
    rows = rows_of((), [replace(RUN.acceptances[0], reason="on\npurpose\x1b[2J")])
    assert rows[0].ended.endswith(": on purpose\ufffd[2J")


def test_each_subject_has_one_row_with_its_newest_finding() -> None:
    rows = finding_rows(overview(RUN.reports))
    assert [(r.step, r.subject, r.word, r.onset, r.times) for r in rows] == [
        (1000, "trivia / history", "forgotten", "lost since step 600", "at 3 checkpoints"),
        (1000, "sums, output length", "regressed", "lost since step 700", "at 3 checkpoints"),
        (900, "checkpoint", "transient", "had been lost since step 800", "at 1 checkpoint"),
    ]
    change = "0.25 at steps 410 to 500 (peak) -> 0.36 (mean of the newest 4)"
    assert rows[1].reason == f"share of the token limit {change}"


def test_a_finding_whose_loss_is_over_says_so_although_no_later_checkpoint_has_one() -> None:
    ends = []
    for one in RUN.incidents:
        if one.measure is Measure.OUTPUT_LENGTH:
            ends.append(replace(one, closed_step=1100, closed_by=Closing.TRANSIENT))
    (row,) = [one for one in finding_rows(overview(RUN.reports), ends) if "length" in one.subject]
    assert row.onset == "lost since step 700: one checkpoint only, back at step 1100"


def test_a_finding_has_the_comparison_that_decided() -> None:
    proof = finding_rows(overview(RUN.reports))[0].proof
    assert proof is not None
    assert (proof.delta, proof.interval) == ("−0.110", "−0.134 to −0.086")  # noqa: RUF001 - a true minus sign
    assert (proof.p, proof.p_items, proof.level) == ("3.1e-07 (worse)", "samples only 4.4e-09", "2.5e-06")


def test_what_was_found_last_comes_first() -> None:
    quiet = replace(RUN.reports[-1], findings=RUN.reports[-1].findings[1:])
    rows = finding_rows(overview([*RUN.reports[:-1], quiet]))
    assert [(r.step, r.subject) for r in rows] == [
        (1000, "sums, output length"),
        (900, "trivia / history"),
        (900, "checkpoint"),
    ]


def test_a_step_that_was_judged_again_shows_what_was_found_then() -> None:
    newest = RUN.reports[-1]
    again = replace(newest, plan_id="again", findings=(), created_at=newest.created_at + timedelta(hours=1))
    assert {r.step for r in finding_rows(overview([*RUN.reports, again]))} == {900}


def test_a_run_without_findings_has_no_rows() -> None:
    assert finding_rows(overview(forgetting_run().reports)) == ()
