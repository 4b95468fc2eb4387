from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from dashboards.views.findings import finding_rows
from tests.judged_run import judged_run
from tests.records import forgetting_run
from tracker.domain.overview.run import overview

RUN = judged_run()


def test_each_subject_has_one_row_with_its_newest_finding() -> None:
    rows = finding_rows(overview(RUN.reports))
    assert [(r.step, r.subject, r.badge.word, r.onset, r.times) for r in rows] == [
        (1000, "trivia / history", "forgotten", "lost since step 600", "at 3 checkpoints"),
        (1000, "sums, output length", "regressed", "lost since step 700", "at 3 checkpoints"),
    ]
    assert rows[1].reason == "answers, as a share of the longest allowed: 0.25 -> 0.36"


def test_a_finding_has_the_comparison_that_decided() -> None:
    proof = finding_rows(overview(RUN.reports))[0].proof
    assert proof is not None
    assert (proof.delta, proof.interval) == ("−0.110", "−0.134 to −0.086")  # noqa: RUF001 - a true minus sign
    assert (proof.p, proof.p_items, proof.level) == ("3.1e-07 worse", "samples alone 4.4e-09", "2.5e-06")


def test_what_was_found_last_comes_first() -> None:
    quiet = replace(RUN.reports[-1], findings=RUN.reports[-1].findings[1:])
    rows = finding_rows(overview([*RUN.reports[:-1], quiet]))
    assert [(r.step, r.subject) for r in rows] == [(1000, "sums, output length"), (900, "trivia / history")]


def test_a_step_that_was_judged_again_shows_what_was_found_then() -> None:
    newest = RUN.reports[-1]
    again = replace(newest, plan_id="again", findings=(), created_at=newest.created_at + timedelta(hours=1))
    assert {r.step for r in finding_rows(overview([*RUN.reports, again]))} == {900}


def test_a_run_without_findings_has_no_rows() -> None:
    assert finding_rows(overview(forgetting_run().reports)) == ()
