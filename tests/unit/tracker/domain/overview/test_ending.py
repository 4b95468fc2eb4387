"""A command ends with 0 only if every checkpoint was judged and everything was delivered."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eval_jobs.errors import ExitCode
from tests.records import checkpoint_of
from tracker.domain.overview.ending import Totals, ending, known_text, sweep_ending, totals_of
from tracker.domain.overview.run import open_gaps, overview
from tracker.domain.overview.standings import blind_spots
from tracker.domain.records.types import Gap, Report, Verdict, VerdictWord

NOW = datetime(2026, 3, 14, tzinfo=UTC)
DONE = Totals(judged=2)


def report(step: int, coverage: float, word: VerdictWord = VerdictWord.MISSING, *, again: int = 0) -> Report:
    verdict = Verdict(
        benchmark="facts", word=word, reason=None, score=coverage or None, stderr=None, coverage=coverage, alpha_test=0
    )
    at = NOW.replace(hour=again)
    plan = f"{step} {again}"
    return Report(
        run_id="r", step=step, plan_id=plan, verdicts=(verdict,), checkpoint=checkpoint_of("r", step), created_at=at
    )


def gap(step: int) -> Gap:
    return Gap(run_id="r", step=step, source_uri="/out", code="E-CKPT", message="torn", hint="", seen_at=NOW)


@pytest.mark.parametrize(
    ("totals", "code", "text", "hint"),
    [
        (DONE, ExitCode.OK, "2 checkpoints evaluated, 0 not evaluated", ""),
        (Totals(), ExitCode.UNKNOWN, "no checkpoint found", "watch.pattern"),
        (Totals(left_out=3), ExitCode.UNKNOWN, "0 checkpoints evaluated, 3 not evaluated", "tracker history"),
        (
            Totals(unscored=3),
            ExitCode.BROKEN,
            "3 checkpoints, none with a score, 0 not evaluated",
            "same command again",
        ),
        (replace(DONE, unscored=1), ExitCode.BROKEN, "2 checkpoints evaluated, 1 without a score", "same command"),
        (replace(DONE, uncovered=1), ExitCode.UNKNOWN, "; 1 checkpoint with too few scores", "above"),
        (replace(DONE, failed=1, unsent=4), ExitCode.BROKEN, "; 4 results pending for MLflow", "same command again"),
        (replace(DONE, unsent=1, left_out=1), ExitCode.BROKEN, "; 1 result pending for MLflow", "tracking.uri"),
        (replace(DONE, rejected=1), ExitCode.BROKEN, "; 1 result rejected by MLflow", "tracker alerts list"),
        (replace(DONE, pending_alerts=2), ExitCode.BROKEN, "; 2 alerts pending", "tracker alerts list"),
    ],
)
def test_the_most_serious_cause_decides_and_says_what_to_do(
    totals: Totals, code: ExitCode, text: str, hint: str
) -> None:
    end = ending(totals)
    assert (end.code, text in end.text, hint in end.hint) == (code, True, True), end
    assert end.line.count("\n") == 0
    assert ("hint: " in end.line) == (code != ExitCode.OK)


def test_every_checkpoint_that_was_found_counts_once_with_its_newest_result() -> None:
    found = {("r", step) for step in (100, 200, 300, 400, 500, 600)}
    reports = [
        report(100, 1.0, VerdictWord.FORGOTTEN, again=1),
        report(100, 0.0),
        report(200, 0.0),
        report(300, 0.5),
        report(500, 1.0, VerdictWord.FIRST),
        report(900, 0.0),
    ]
    totals = totals_of(found, reports, [gap(400), gap(500), gap(800)])
    assert totals == Totals(judged=2, unscored=2, uncovered=1, left_out=1), "600 was found, and nothing came of it"


def test_checkpoints_of_an_earlier_start_are_counted() -> None:
    assert known_text(Totals(judged=3), is_last=False) == "3 of 3 checkpoints already evaluated; waiting for new ones"
    some = Totals(judged=1, uncovered=1, unscored=1, left_out=1)
    assert known_text(some, is_last=True) == "2 of 4 checkpoints already evaluated; nothing to do"


@pytest.mark.parametrize(
    ("missing", "unsent", "note", "code"),
    [
        (0, 0, "", ExitCode.OK),
        (2, 0, "", ExitCode.UNKNOWN),
        (0, 0, "no pinned checkpoint of ghost", ExitCode.UNKNOWN),
        (2, 1, "", ExitCode.BROKEN),
    ],
)
def test_a_sweep_ends_by_the_same_rule(missing: int, unsent: int, note: str, code: ExitCode) -> None:
    end = sweep_ending(missing=missing, unsent=unsent, note=note)
    assert (end.code, bool(end.hint)) == (code, code != ExitCode.OK)


@pytest.mark.parametrize(
    ("reports", "gaps", "said"),
    [
        ([report(100, 1.0, VerdictWord.FIRST)], [], ()),
        ([report(100, 0.0), report(200, 1.0, VerdictWord.FIRST)], [gap(150)], ()),
        ([report(100, 1.0, VerdictWord.FIRST), report(200, 0.0)], [], ("facts has no result at step 200",)),
        ([report(100, 1.0, VerdictWord.FIRST)], [gap(200)], ("step 200 was not evaluated: torn",)),
        ([], [gap(200)], ("step 200 was not evaluated: torn",)),
    ],
)
def test_what_is_unknown_at_the_newest_step_is_a_blind_spot(
    reports: list[Report], gaps: list[Gap], said: tuple[str, ...]
) -> None:
    assert blind_spots(overview(reports, open_gaps(reports, gaps))) == said
