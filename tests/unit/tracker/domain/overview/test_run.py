from dataclasses import replace
from datetime import timedelta

import pytest

from tests.judged_run import judged_run
from tests.records import checkpoint_of, forgetting_run
from tracker.domain.overview.run import newest_of_reports, overview
from tracker.domain.overview.standings import MAX_CHARS, decisive_comparison, headline, standings
from tracker.domain.records.losses import Measure
from tracker.domain.records.reasons import NothingEarlier
from tracker.domain.records.types import Baseline, Report, VerdictWord

RUN = forgetting_run()


def _of_facts(later: Report) -> str:
    """Return the sentence on facts alone, at the end of the run."""
    reports = [*RUN.reports, later]
    return headline(overview([replace(one, verdicts=one.verdicts[:1], findings=()) for one in reports]))


def _with_words(report: Report, **words: VerdictWord) -> Report:
    verdicts = (replace(v, word=words.get(v.benchmark, v.word)) for v in report.verdicts)
    return replace(report, verdicts=tuple(verdicts))


def test_of_two_reports_of_a_step_each_is_the_newest_of_what_the_later_one_does_not_have() -> None:
    first = RUN.reports[0]
    later = replace(
        first, plan_id="again", verdicts=first.verdicts[:1], created_at=first.created_at + timedelta(hours=1)
    )
    newest = newest_of_reports([later, *RUN.reports])
    names = tuple(verdict.benchmark for verdict in first.verdicts)
    assert (newest["again"], newest[first.plan_id]) == (names[:1], names[1:])


def test_the_finding_of_the_run_is_one_sentence() -> None:
    assert headline(overview(RUN.reports)) == "facts and sums were forgotten after step 600; reversal improved earlier"


def test_the_sentence_follows_the_run() -> None:
    said = [headline(overview(RUN.reports[:count])) for count in range(9)]
    assert said == [
        "nothing evaluated yet",
        "facts, sums and reversal were measured for the first time",
        "no significant change in 3 benchmarks (all inconclusive)",
        "sums has no result at step 300; facts improved; no significant change in reversal (inconclusive)",
        "facts and sums improved; no significant change in reversal (inconclusive)",
        "facts and sums improved; no significant change in reversal (inconclusive)",
        "facts and sums improved earlier; no significant change in reversal (inconclusive)",
        "facts and sums regressed after step 600; reversal improved",
        "facts and sums regressed after step 600; reversal improved",
    ]


def test_no_difference_found_is_never_called_no_change() -> None:
    newest = _with_words(RUN.reports[1], facts=VerdictWord.EQUIVALENT)
    assert headline(overview([newest])) == "no significant change in 3 benchmarks (2 inconclusive, 1 equivalent)"


def test_a_loss_that_cannot_be_told_any_more_is_still_mentioned() -> None:
    lasting = _with_words(replace(RUN.reports[-1], step=1100), facts=VerdictWord.INCONCLUSIVE)
    over = replace(lasting, verdicts=(replace(lasting.verdicts[0], lost_since=None), *lasting.verdicts[1:]))
    assert "facts was inconclusive at step 1100 (forgotten at step 1000)" in _of_facts(lasting)
    assert _of_facts(over) == "no significant change in facts (inconclusive)"


def test_a_blind_spot_after_a_loss_does_not_hide_it() -> None:
    later = _with_words(replace(RUN.reports[-1], step=1100), facts=VerdictWord.MISSING)
    assert "facts has no result at step 1100 (forgotten at step 1000)" in headline(overview([*RUN.reports, later]))


def test_an_accepted_level_is_not_called_a_first_measurement() -> None:
    later = _with_words(replace(RUN.reports[-1], step=1100), facts=VerdictWord.FIRST)
    assert _of_facts(later) == "facts has a new baseline from step 1100 (forgotten at step 1000)"
    reason = NothingEarlier(accepted_step=1100)
    (first, *_) = _with_words(RUN.reports[-1], facts=VerdictWord.FIRST).verdicts
    alone = replace(RUN.reports[-1], verdicts=(replace(first, reason=reason),))
    assert headline(overview([alone])) == "facts has a new baseline from step 1000"


def test_a_newest_checkpoint_that_was_not_evaluated_is_named() -> None:
    newest, earlier = (replace(RUN.gaps[0], step=step) for step in (RUN.reports[-1].step + 100, 150))
    assert headline(overview(RUN.reports, [newest])).endswith(
        f"; step {newest.step} was not evaluated; reversal improved earlier"
    )
    assert headline(overview(RUN.reports, [earlier])) == headline(overview(RUN.reports))


def test_losses_that_began_at_unlike_steps_are_said_together() -> None:
    newest = RUN.reports[-1]
    later = replace(newest, verdicts=(replace(newest.verdicts[0], lost_since=800), *newest.verdicts[1:]))
    said = headline(overview([*RUN.reports[:-1], later]))
    assert said.startswith("facts and sums were forgotten after steps 600 to 700;")


def test_a_loss_began_after_the_last_good_checkpoint_and_not_after_the_luckiest_one() -> None:
    newest = RUN.reports[-1]
    facts = newest.verdicts[0]
    luckier = tuple(replace(c, baseline_steps=(500,)) for c in facts.comparisons)
    moved = replace(newest, verdicts=(replace(facts, comparisons=luckier), *newest.verdicts[1:]))
    found = standings(overview([*RUN.reports[:-1], moved]))[0]
    assert (found.benchmark, found.after_step, found.best_steps) == ("facts", 600, (500,))


@pytest.mark.parametrize("between", [VerdictWord.SUSPECT, VerdictWord.MISSING, VerdictWord.INCOMPARABLE])
def test_doubts_and_blind_spots_do_not_interrupt_a_loss(between: VerdictWord) -> None:
    unplaced = [replace(r, verdicts=tuple(replace(v, lost_since=None) for v in r.verdicts)) for r in RUN.reports]
    reports = [_with_words(r, facts=between) if r.step == 800 else r for r in unplaced]
    assert standings(overview(reports))[0].after_step == 600


def test_a_loss_that_is_over_is_said_once_and_not_held_against_later_checkpoints() -> None:
    back = _with_words(replace(RUN.reports[-1], step=1100), facts=VerdictWord.RECOVERED)
    assert headline(overview([*RUN.reports, back])) == (
        "sums was forgotten after step 600; facts recovered; reversal improved earlier"
    )
    after = _with_words(replace(RUN.reports[-1], step=1200), facts=VerdictWord.INCONCLUSIVE)
    assert headline(overview([*RUN.reports, back, after])) == (
        "sums was forgotten after step 600; reversal improved earlier; no significant change in facts (inconclusive)"
    )


def test_the_sentence_names_the_most_urgent_and_counts_the_rest() -> None:
    reports = judged_run().reports
    assert headline(overview(reports)) == (
        "facts and sums were forgotten after step 600; trivia / history was forgotten since step 600; "
        "and 3 other findings"
    )
    assert "history" not in headline(overview([*reports, replace(RUN.reports[-1], step=1100)]))


def test_of_long_names_the_sentence_shows_one() -> None:
    newest = RUN.reports[-1]
    names = [f"a_benchmark_with_a_long_name_{number}" for number in range(4)]
    verdicts = tuple(replace(newest.verdicts[0], benchmark=name) for name in names)
    said = headline(overview([replace(newest, verdicts=verdicts)]))
    assert said.startswith("a_benchmark_with_a_long_name_0 and 3 more were forgotten")
    assert len(said) <= MAX_CHARS


def test_a_benchmark_with_a_lost_subset_is_not_said_to_show_nothing() -> None:
    early, late = RUN.reports[1], judged_run().reports[-1]
    subset, length = late.findings
    cut_off = replace(length, benchmark="facts", measure=Measure.COMPLETENESS)
    found = replace(early, findings=(replace(subset, benchmark="sums"), replace(length, benchmark="sums"), cut_off))
    assert headline(overview([found])) == (
        "sums / history was forgotten since step 600; answers to sums have become longer since step 700; "
        "and 2 other findings"
    )


def test_losses_come_first_and_blind_spots_before_gains() -> None:
    newest = _with_words(RUN.reports[-1], sums=VerdictWord.MISSING)
    assert [s.benchmark for s in standings(overview([*RUN.reports[:-1], newest]))] == ["facts", "sums", "reversal"]
    assert [s.word for s in standings(overview([newest]))][:2] == [VerdictWord.FORGOTTEN, VerdictWord.MISSING]


def test_a_step_that_was_judged_again_shows_its_newest_verdict() -> None:
    again = _with_words(
        replace(RUN.reports[-1], created_at=RUN.reports[-1].created_at + timedelta(hours=1)),
        facts=VerdictWord.INCOMPARABLE,
    )
    verdict = overview([again, *RUN.reports]).at(1000, "facts")
    assert verdict is not None
    assert verdict.word is VerdictWord.INCOMPARABLE


def test_benchmarks_keep_the_order_of_the_newest_report() -> None:
    newest = RUN.reports[-1]
    without_facts = replace(newest, step=1100, verdicts=newest.verdicts[:0:-1])
    assert overview([*RUN.reports, without_facts]).benchmarks == ("reversal", "sums", "facts")


def test_a_gap_at_a_step_that_was_evaluated_later_is_no_gap() -> None:
    assert [g.step for g in overview(RUN.reports, RUN.gaps).gaps] == [550]
    assert overview(RUN.reports, [replace(RUN.gaps[0], step=500)]).gaps == ()


def test_a_verdict_rests_on_its_first_comparison() -> None:
    forgotten = RUN.reports[-1].verdicts[0]
    against = decisive_comparison(forgotten)
    assert against is not None
    assert against.baseline is Baseline.PEAK
    assert against is forgotten.comparisons[0]
    assert decisive_comparison(RUN.reports[0].verdicts[0]) is None


def test_a_name_with_braces_is_not_taken_for_a_place() -> None:
    verdicts = tuple(replace(v, benchmark="{be} {step}") for v in RUN.reports[-1].verdicts[:1])
    report = replace(RUN.reports[-1], verdicts=verdicts)
    assert headline(overview([report])) == "{be} {step} was forgotten after step 600"


# --- training that goes back


def _of(step: int, minute: int, report: Report) -> Report:
    at = RUN.reports[0].created_at + timedelta(minutes=minute)
    checkpoint = replace(checkpoint_of("run", step), digest=f"{minute:08d}{step}", ready_at=at)
    return replace(report, plan_id=f"{step}-{minute}", step=step, checkpoint=checkpoint)


def test_what_training_left_behind_stands_apart_and_is_no_part_of_the_finding() -> None:
    good, bad = RUN.reports[5], RUN.reports[-1]
    first = [_of(100, 1, good), _of(200, 2, bad), _of(300, 3, bad)]
    view = overview([*first, _of(200, 60, good)])
    assert view.steps == (100, 200)
    assert [(c.step, c.digest, end) for c, end in view.left] == [(200, "00000002200", 200), (300, "00000003300", 200)]
    verdict = view.at(200, "facts")
    assert verdict == next(v for v in good.verdicts if v.benchmark == "facts")
    assert "forgotten" not in headline(view)


def test_a_checkpoint_that_was_left_and_is_judged_once_more_does_not_come_back() -> None:
    good, bad = RUN.reports[5], RUN.reports[-1]
    late = replace(_of(200, 2, bad), created_at=bad.created_at + timedelta(days=9))
    view = overview([_of(100, 1, good), _of(200, 60, good), late])
    assert view.at(200, "facts") == next(v for v in good.verdicts if v.benchmark == "facts")
