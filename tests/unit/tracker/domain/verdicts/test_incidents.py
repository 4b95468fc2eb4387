"""Incidents: opened once, forgotten, recovered, accepted, and never announced twice."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from eval_jobs.types import EvalRecord
from tests.unit.tracker.domain.judging import NOW, changes_of, followed, judged, remembering, right, run_of, scores_of
from tests.unit.tracker.domain.making import record_of, suite_of
from tracker.domain.alerts.rules import alerts_for
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.losses import Acceptance, Closing, Incident
from tracker.domain.records.policy import Pinned, Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Baseline, Report, VerdictWord
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.hypothesis import Subject
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.losses.incidents import accepted, counting, incidents_at, is_covered, is_of_series, open_of

POLICY = Policy(planned_checkpoints=50)
SUBJECT = Subject(suite="skills", benchmark="sums")


def noisy(*levels: float, n: int = 300, seed: int = 0, first_step: int = 100) -> list[EvalRecord]:
    """One checkpoint for each level: samples keep their rank, and a few flip by chance."""
    rng = np.random.default_rng(seed)
    rank = rng.permutation(n)
    records = []
    for i, level in enumerate(levels):
        answers = (rank < level * n) ^ (rng.random(n) < 0.02)
        records.append(record_of(first_step + 100 * i, {"sums": answers.astype(float).tolist()}))
    return records


def changes(reports: Sequence[Report]) -> list[Incident]:
    return changes_of(reports)


def told(reports: Sequence[Report]) -> list[tuple[int | None, str]]:
    """What people hear, stored as the watcher stores it."""
    stored: dict[str, Alert] = {}
    heard = []
    for report in reports:
        alerts = alerts_for(report, [a for a in stored.values() if a.state is AlertState.FIRING])
        stored |= {a.fingerprint: a for a in alerts}
        heard += [(a.step, a.state.value) for a in alerts]
    return heard


def accepting(step: int, from_step: int) -> Acceptance:
    return Acceptance(run_id="run", step=step, benchmark="sums", from_step=from_step, reason="fine", accepted_at=NOW)


# --- whole runs


def test_a_loss_that_lasts_is_one_incident_told_once() -> None:
    reports = followed(noisy(*[0.9] * 12, *[0.5] * 12), POLICY)
    opened, forgotten = changes(reports)[0], changes(reports)[1:]
    assert (opened.onset_step, opened.opened_step, opened.closed_step) == (1300, 1300, None)
    assert forgotten == []  # it was there from the start
    assert told(reports) == [(1300, "firing")]
    assert {r.verdicts[0].lost_since for r in reports[12:]} == {1300}
    assert {r.verdicts[0].lost_since for r in reports[:12]} == {None}


def test_something_learned_and_lost_is_forgotten_once_and_told_once() -> None:
    reports = followed(noisy(*[0.2] * 12, *[0.9] * 20, *[0.3] * 8), POLICY)
    opened, forgotten = changes(reports)
    assert (opened.opened_step, opened.forgotten) == (3300, False)
    assert forgotten == replace(opened, forgotten=True, drop=forgotten.drop)
    at = next(r.step for r in reports if forgotten in r.incidents)
    assert 3500 <= at <= 3700  # the third checkpoint below the peak, four together
    assert told(reports) == [(3300, "firing")]


def test_a_loss_that_comes_back_ends_at_the_second_checkpoint_that_is_back() -> None:
    reports = followed(noisy(*[0.9] * 12, *[0.5] * 3, *[0.87] * 12), POLICY)
    opened, closed = changes(reports)
    verdict_at_end = reports[16].verdicts[0]
    assert verdict_at_end.drop == reports[14].verdicts[0].drop
    assert closed == replace(
        opened,
        closed_step=1700,
        closed_by=Closing.RECOVERED,
        last_step=1500,
        closed_digest="d1700",
        drop=verdict_at_end.drop,
    )
    verdict = reports[16].verdicts[0]
    assert (verdict.word, verdict.lost_since) == (VerdictWord.RECOVERED, 1300)
    assert reason_text(verdict) == "0.853 again, after 0.490 since step 1300 (before it 0.890 at step 1200)"
    assert told(reports) == [(1300, "firing"), (1700, "resolved")]


def test_the_checkpoints_of_a_loss_that_is_over_leave_both_sides_of_every_test() -> None:
    run = noisy(*[0.9] * 12, *[0.5] * 3, *[0.9] * 12)
    reports = followed(run, POLICY)
    for report in reports[17:]:
        assert report.verdicts[0].word not in (VerdictWord.REGRESSED, VerdictWord.SUSPECT, VerdictWord.IMPROVED)
        for comparison in report.verdicts[0].comparisons:
            assert not {1300, 1400, 1500} & {*comparison.baseline_steps, *comparison.pooled_steps}


def test_a_second_loss_later_is_a_second_incident() -> None:
    reports = followed(noisy(*[0.9] * 12, *[0.5] * 3, *[0.87] * 8, *[0.5] * 4), POLICY)
    assert [(e.opened_step, e.closed_step) for e in changes(reports)] == [(1300, None), (1300, 1700), (2400, None)]
    assert told(reports) == [(1300, "firing"), (1700, "resolved"), (2400, "firing")]


def test_an_early_loss_is_not_recovered_by_its_own_low_neighbours() -> None:
    """Two good checkpoints, then low ones: blocks of the baseline fill up with the loss itself."""
    reports = followed(noisy(*[0.9] * 3, *[0.7] * 37, n=500), POLICY)
    assert [e.closed_step for e in changes(reports)] == [None]
    assert VerdictWord.RECOVERED not in {r.verdicts[0].word for r in reports}


def test_an_early_loss_that_comes_back_before_there_is_a_peak_is_recovered() -> None:
    reports = followed(noisy(*[0.9] * 4, *[0.4] * 2, *[0.885] * 4), POLICY)
    assert [(e.opened_step, e.closed_step, e.last_step) for e in changes(reports)] == [
        (500, None, None),
        (500, 800, 600),
    ]


def test_one_checkpoint_below_the_baseline_ends_nothing() -> None:
    reports = followed(noisy(*[0.9] * 12, *[0.5] * 2, 0.87, *[0.5] * 5), POLICY)
    assert [e.closed_step for e in changes(reports)] == [None]


def test_a_checkpoint_at_the_baseline_ends_what_was_lost_before_it() -> None:
    """A low checkpoint, then the best of the run, then a loss that lasts: these are two losses."""
    reports = followed(run_of(150, 156, 154, 4, 172, 0, 0, 0, 0, n=200), POLICY)
    transient, lasting = {e.opened_step: e for e in changes(reports)}.values()
    assert (transient.onset_step, transient.last_step, transient.closed_by) == (400, 400, Closing.TRANSIENT)
    assert (lasting.onset_step, lasting.closed_step) == (600, None)
    assert [r.verdicts[0].word for r in reports[3:7]] == [
        VerdictWord.REGRESSED,
        VerdictWord.TRANSIENT,
        VerdictWord.REGRESSED,
        VerdictWord.REGRESSED,
    ]
    assert reason_text(reports[4].verdicts[0]) == "0.860 again: only step 400 was worse (0.770 at step 300 -> 0.020)"
    said = "0.860 at step 500 -> 0.000 since step 600; 172 of 200 samples lost"
    assert reason_text(reports[5].verdicts[0]) == said
    assert reason_text(reports[-1].verdicts[0]) == said
    assert told(reports) == [(400, "firing"), (500, "resolved"), (600, "firing")]


def test_a_loss_that_is_seen_late_begins_after_the_last_checkpoint_at_the_baseline() -> None:
    """A low checkpoint that raised no alarm, and the one that is back after it, are no part of the later loss."""
    reports = followed(run_of(60, 80, 76, 60, 100, 0, 0, 0, 0, n=200), Policy(planned_checkpoints=20))
    (lasting,) = changes(reports)
    assert (lasting.onset_step, lasting.opened_step) == (600, 900)
    assert lasting.drop is not None
    assert (lasting.drop.baseline_steps, lasting.drop.before, lasting.drop.now) == ((500,), 0.5, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_small_loss_that_lasts_is_told_once_though_one_checkpoint_cannot_show_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ability = rng.beta(0.7, 0.35, 500)
    answers = (rng.random((50, 500)) < ability).astype(float)
    doomed = rng.permutation(np.flatnonzero(ability > 0.5))[:30]  # about 5 points
    answers[25:, doomed] = 0.0
    reports = followed(run_of(*(row.tolist() for row in answers)), POLICY)
    assert [e.closed_step for e in changes(reports)] == [None]
    assert told(reports) == [(changes(reports)[0].opened_step, "firing")]
    alone = [c.p_worse for r in reports[33:] for c in r.verdicts[0].comparisons if len(c.pooled_steps) == 1]
    assert max(alone) > 0.05


def test_an_accepted_level_is_the_new_normal() -> None:
    run = noisy(*[0.9] * 12, *[0.5] * 4)
    reports = followed(run, POLICY)
    (incident,) = changes(reports)
    run_context = RunContext(incidents=(accepted(incident, 1600),), acceptances=(accepting(1600, incident.onset_step),))
    more = noisy(*[0.5] * 12, first_step=1700)
    scores = scores_of(run)
    for record in more:
        scores = scores_of([record], scores)
        report = judge(record, scores, run_context, POLICY, now=NOW)
        assert report.incidents == ()
        assert report.verdicts[0].word not in (VerdictWord.REGRESSED, VerdictWord.RECOVERED)
        assert report.verdicts[0].lost_since is None
        assert all(min(c.baseline_steps) >= 1300 for c in report.verdicts[0].comparisons)
    again = noisy(0.1, first_step=2900)[0]
    report = judge(again, scores_of([again], scores), run_context, POLICY, now=NOW)
    assert [(e.opened_step, e.closed_step) for e in report.incidents] == [(2900, None)]


def test_the_accepted_step_itself_judged_again_neither_recovers_nor_opens() -> None:
    run = noisy(*[0.9] * 12, *[0.5] * 6)
    (incident,) = changes(followed(run, POLICY))
    run_context = RunContext(incidents=(accepted(incident, 1800),), acceptances=(accepting(1800, incident.onset_step),))
    report = judge(run[-1], scores_of(run), run_context, POLICY, now=NOW)
    assert report.incidents == ()
    assert report.verdicts[0].word is not VerdictWord.RECOVERED


@pytest.mark.slow
def test_a_checkpoint_that_comes_late_opens_and_announces_nothing_and_may_end_a_loss_earlier() -> None:
    levels = [*[0.9] * 12, *[0.5] * 3, *[0.9] * 4]
    run = noisy(*levels)
    for late in range(3, len(run) - 1):
        rest = [*run[:late], *run[late + 1 :]]
        reports = followed(rest, POLICY)
        run_context = remembering(RunContext(), *reports)
        report = judge(run[late], scores_of([*rest, run[late]]), run_context, POLICY, now=NOW)
        ends = {one.closed_step for one in changes(reports) if one.closed_step is not None}
        assert [one.closed_step for one in report.incidents] in ([], [100 * (late + 1)])
        assert all(report.step < end for end in ends) or report.incidents == ()
        assert alerts_for(report, ()) == ()
        if late in (12, 13, 14):
            assert report.verdicts[0].word is VerdictWord.REGRESSED


def test_a_checkpoint_of_an_older_series_that_comes_late_opens_nothing() -> None:
    old = run_of(*[190] * 8, suite=suite_of(["sums"], few_shot=5))
    new = [record_of(1000, {"sums": right(190)}, suite=suite_of(["sums"], few_shot=0))]
    late = record_of(900, {"sums": right(20)}, suite=suite_of(["sums"], few_shot=5))
    report = judge(late, scores_of([*old, *new, late]), RunContext(), POLICY, now=NOW)
    assert report.verdicts[0].word is VerdictWord.REGRESSED
    assert report.incidents == ()


def test_a_loss_of_all_together_is_accepted_with_the_last_benchmark_that_fell() -> None:
    together = Incident(
        run_id="run",
        suite="skills",
        benchmark="",
        opened_step=900,
        onset_step=900,
        opened_digest="of it",
        benchmarks=("sums", "words"),
    )

    def accepting_of(benchmark: str, step: int) -> Acceptance:
        return replace(accepting(step, 900), benchmark=benchmark)

    first, second = accepting_of("sums", 1000), accepting_of("words", 1000)
    assert not is_covered(together, first, [first])
    assert is_covered(together, second, [first, second])
    assert not is_covered(together, second, [accepting_of("sums", 800), second])
    assert not is_covered(together, accepting_of("colors", 1000), [first, second])


def test_a_loss_of_another_series_mutes_and_recovers_nothing() -> None:
    """The old loss cannot be judged under new settings, and a new one must still be told."""
    old = run_of(*[190] * 8, *[20] * 3, suite=suite_of(["sums"], few_shot=5))
    suite = suite_of(["sums"], few_shot=0)
    levels = [*[150] * 30, *[20] * 2]
    new = [record_of(1200 + 100 * i, {"sums": right(level)}, suite=suite) for i, level in enumerate(levels)]
    opened = changes(followed([*old, *new], POLICY))
    assert [(e.opened_step, e.closed_step) for e in opened] == [(900, None), (4200, None)]


def test_a_run_below_its_pinned_model_is_told_once() -> None:
    pinned = scores_of([record_of(5, {"sums": right(290, 300)})])
    policy = replace(POLICY, pinned=Pinned(run_id="base", step=5))
    reports = followed(noisy(*[0.5] * 40), policy, RunContext(pinned=replace(pinned, run_id="base")))
    assert [(e.opened_step, e.closed_step) for e in changes(reports)] == [(100, None)]
    assert {r.verdicts[0].word for r in reports} == {VerdictWord.REGRESSED}
    back = followed(noisy(*[0.5] * 12, *[0.97] * 3), policy, RunContext(pinned=replace(pinned, run_id="base")))
    assert [(e.opened_step, e.closed_step) for e in changes(back)] == [(100, None), (100, 1400)]


@pytest.mark.slow
@pytest.mark.parametrize("levels", [[*[0.9] * 12, *[0.5] * 4], [*[0.2] * 12, *[0.9] * 20, *[0.3] * 6]])
def test_judging_again_after_a_crash_says_the_same_and_changes_the_same(levels: list[float]) -> None:
    run = noisy(*levels, *[0.9] * 3)
    run_context = RunContext()
    for i, record in enumerate(run):
        scores = scores_of(run[: i + 1])
        report = judge(record, scores, run_context, POLICY, now=NOW)
        run_context = remembering(run_context, report)
        assert judge(record, scores, run_context, POLICY, now=NOW) == report


def test_judging_an_earlier_step_again_says_what_it_said() -> None:
    run = noisy(*[0.9] * 12, *[0.5] * 3, *[0.9] * 6)
    reports = followed(run, POLICY)
    run_context = remembering(RunContext(), *reports)
    for i, report in enumerate(reports):
        again = judge(run[i], scores_of(run[: i + 1]), run_context, POLICY, now=NOW)
        assert again.verdicts == report.verdicts


def test_benchmarks_lose_apart() -> None:
    both = [
        record_of(a.plan.checkpoint.step, {"sums": _scores(a), "facts": _scores(b)})
        for a, b in zip(noisy(*[0.9] * 12, *[0.5] * 3), noisy(*[0.7] * 15, seed=1), strict=True)
    ]
    reports = followed(both, POLICY)
    assert [(e.benchmark, e.opened_step) for e in changes(reports)] == [("sums", 1300)]
    assert judged(both, policy=POLICY).comparisons[0].baseline in (Baseline.RECENT, Baseline.PEAK)


# --- the parts


def incident(opened: int, closed: int | None = None, by: Closing | None = None, last: int | None = None) -> Incident:
    return Incident(
        run_id="run",
        suite="skills",
        benchmark="sums",
        opened_step=opened,
        opened_digest="of it",
        onset_step=opened - 100,
        closed_step=closed,
        closed_by=by,
        last_step=last,
    )


RECOVERED = incident(500, 900, Closing.RECOVERED, 700)
ACCEPTED = incident(500, 900, Closing.ACCEPTED)


def test_incidents_are_seen_as_they_stood_before_a_step() -> None:
    reopened = incident(500)
    assert incidents_at([RECOVERED], SUBJECT, 500) == ()
    assert incidents_at([RECOVERED], SUBJECT, 600) == (reopened,)
    assert incidents_at([RECOVERED], SUBJECT, 900) == (reopened,)
    assert incidents_at([RECOVERED], SUBJECT, 1000) == (RECOVERED,)
    assert incidents_at([ACCEPTED], SUBJECT, 800) == (reopened,)
    assert incidents_at([ACCEPTED], SUBJECT, 900) == (ACCEPTED,)
    assert incidents_at([RECOVERED], replace(SUBJECT, subset="law"), 1000) == ()
    assert incidents_at([RECOVERED], replace(SUBJECT, suite="other"), 1000) == ()


def test_a_loss_of_all_together_is_of_those_whose_settings_are_still_its_own() -> None:
    together = replace(incident(500), benchmark="", benchmarks=("sums", "words"), series=("a", "b"))
    cases: list[tuple[dict[str, str], bool]] = [
        ({"sums": "a", "words": "b"}, True),
        ({"sums": "a", "words": "other"}, True),
        ({"sums": "other", "words": "other"}, False),
        ({"sums": "other"}, False),
        ({}, True),
    ]
    assert [is_of_series(together, series) for series, _ in cases] == [wanted for _, wanted in cases]


def test_the_loss_that_lasts_is_the_newest_one_that_this_series_has_shown() -> None:
    known = (RECOVERED, incident(1200))
    assert open_of(known, (500, 1200)) == known[1]
    assert open_of(known, (500, 1300)) is None
    assert open_of((RECOVERED,), (500,)) is None


def test_checkpoints_of_past_losses_and_before_accepted_levels_do_not_count() -> None:
    steps = (300, 400, 500, 700, 800, 900)
    assert counting(steps, (RECOVERED,), ()) == (True, False, False, False, True, True)
    assert counting(steps, (ACCEPTED,), ()) == (True,) * 6
    assert counting(steps, (), (accepting(800, 500),)) == (False, False, True, True, True, True)
    assert counting(steps, (), (accepting(1000, 500),)) == (True,) * 6
    assert counting((300, 400, 500), (RECOVERED,), ())[-1]  # the candidate always counts


# --- private


def _scores(record: EvalRecord) -> list[float | None]:
    return [s.score for s in record.outcomes[0].samples]  # type: ignore[union-attr]


@pytest.mark.parametrize("n", [56, 200, 1000])
def test_a_part_of_what_was_lost_is_no_recovery(n: int) -> None:
    low = [int(0.2 * n)] * 6
    reports = followed(run_of(int(0.62 * n), *low, *[int(0.4 * n)] * 6, *[int(0.61 * n)] * 8, n=n), POLICY)
    recovered_at = [r.step for r in reports if r.verdicts[0].word is VerdictWord.RECOVERED]
    assert [e.closed_step for e in reports[12].incidents] == [None]
    assert [step > 1300 for step in recovered_at] == [True]
