from __future__ import annotations

from dataclasses import replace

from dashboards.views.episodes import loss_rows
from tests.judged_run import judged_run
from tracker.domain.records.types import Closing

RUN = judged_run()


def test_every_loss_says_when_it_began_where_it_was_found_and_how_it_ended() -> None:
    rows = loss_rows(RUN.episodes, RUN.acceptances)
    assert [(r.onset, r.opened, r.subject, r.badge.word if r.badge else "", r.ended) for r in rows] == [
        (700, 700, "facts", "forgotten", "lasts"),
        (700, 800, "sums, output length", "regressed", "lasts"),
        (600, 700, "trivia / history", "regressed", "lasts"),
        (700, 700, "sums", "regressed", "level of step 800 accepted on 2026-03-15: the data mix changed on purpose"),
        (400, 500, "trivia", "regressed", "recovered at step 1000, below until step 800"),
        (300, None, "reversal", "", "level of step 300 accepted on 2026-03-15: the data mix changed on purpose"),
    ]


def test_one_acceptance_that_ends_two_losses_is_no_row_of_its_own() -> None:
    (sums,) = (e for e in RUN.episodes if e.closed_by is Closing.ACCEPTED)
    rows = loss_rows((sums, replace(sums, subset="easy")), RUN.acceptances[:1])
    assert [(r.subject, r.ended[:22]) for r in rows] == [
        ("sums", "level of step 800 acce"),
        ("sums / easy", "level of step 800 acce"),
    ]


def test_a_loss_whose_acceptance_is_not_at_hand_still_says_how_it_ended() -> None:
    rows = loss_rows([e for e in RUN.episodes if e.closed_by is Closing.ACCEPTED], ())
    assert [r.ended for r in rows] == ["accepted at step 800"]


def test_a_reason_can_neither_break_lines_nor_control_a_display() -> None:
    rows = loss_rows((), [replace(RUN.acceptances[0], reason="on\npurpose\x1b[2J")])
    assert rows[0].ended.endswith(": on purpose\ufffd[2J")
