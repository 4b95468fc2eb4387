"""A part of each benchmark first: who is asked whole, what a suspicion leads to, and that nothing is asked twice."""

from dataclasses import replace

import pytest

from eval_jobs.identity import benchmark_fingerprint, make_plan
from eval_jobs.types import (
    Benchmark,
    Screen,
    ScreenPart,
    ServeSpec,
    Suite,
)
from tests.records import checkpoint_of
from tests.unit.tracker.app.screening_bench import (
    COST,
    LOST_AT,
    RUN,
    SAMPLES,
    Bench,
    checkpoint,
    through,
)
from tracker.app.review import review
from tracker.app.tick import tick
from tracker.domain.records.alerts import AlertState, alert_subject_text
from tracker.domain.records.display import duration_text
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import VerdictWord
from tracker.domain.verdicts.screening import is_screen, savings_text


def test_a_screen_is_another_plan_of_the_same_benchmarks() -> None:
    own = replace(checkpoint_of("run", 100), files_digest="f" * 64)
    data = Benchmark(name="sums", adapter="exact", data="/data/sums.jsonl", data_digest="a" * 64)
    suite = Suite(name="default", benchmarks=(data, Benchmark(name="gsm8k", adapter="gsm8k", limit=100)))
    plan = make_plan(own, suite, ServeSpec(), ())
    screened = make_plan(own, replace(suite, part=ScreenPart(screen=Screen(samples=10))), ServeSpec(), ())
    assert screened.id != plan.id
    assert benchmark_fingerprint(data, screened.suite) == benchmark_fingerprint(data, plan.suite)


def test_the_first_checkpoints_and_every_fifth_are_asked_whole() -> None:
    bench = Bench()
    through(bench, 2400)
    firsts = [kind for kind in bench.kinds() if "rest" not in kind]
    whole = [int(kind.split()[0]) for kind in firsts if kind.endswith("whole")]
    assert whole == [*range(100, 1201, 100), 1700, 2200]
    assert [int(kind.split()[0]) for kind in firsts] == list(range(100, 2401, 100))


def test_without_the_setting_everything_is_asked_of_every_checkpoint() -> None:
    bench = Bench(screening=None)
    through(bench, 1500)
    assert bench.kinds() == [f"{step} whole" for step in range(100, 1501, 100)]
    assert all(v.screened is None for r in bench.fakes.history.reports(RUN) for v in r.verdicts)


@pytest.mark.slow
def test_a_watcher_that_starts_again_plans_nothing_anew_and_keeps_the_rhythm() -> None:
    undisturbed, disturbed = Bench(), Bench()
    through(undisturbed, 2400)
    for step in range(100, 2401, 100):
        disturbed.start_again()
        disturbed.save(step)
    assert disturbed.kinds() == undisturbed.kinds()


def test_a_loss_is_seen_by_the_screen_asked_for_told_once_and_no_sample_is_asked_twice() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    assert bench.kinds()[-2:] == [f"{LOST_AT} screen", f"{LOST_AT} rest sums"]
    assert bench.words(LOST_AT)["sums"] is VerdictWord.REGRESSED
    assert bench.firing() == [LOST_AT]
    assert max(bench.asked.values()) == 1
    of_sums = sum(1 for step, name, _ in bench.asked if (step, name) == (LOST_AT, "sums"))
    of_facts = sum(1 for step, name, _ in bench.asked if (step, name) == (LOST_AT, "facts"))
    assert (of_sums, of_facts) == (SAMPLES, 100)


def test_what_is_published_of_a_rest_is_what_the_checkpoint_cost_altogether() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    bench.fakes.tracking.flush()
    published = [r for r, _ in bench.fakes.tracking.records if r.plan.checkpoint.step == LOST_AT]
    screen, rest = (next(r for r in reversed(published) if is_screen(r.plan) == wanted) for wanted in (True, False))
    assert [r.cost and r.cost.evaluating_s for r in (screen, rest)] == [COST.evaluating_s, 2 * COST.evaluating_s]
    kept = bench.fakes.history.record(rest.plan.id)
    assert kept is not None
    assert kept.cost == COST, "the history knows each evaluation's own"


def test_both_parts_together_are_the_record_that_asking_everything_would_have_made() -> None:
    bench, always = Bench(lost_at=LOST_AT), Bench(lost_at=LOST_AT, screening=None)
    through(bench, LOST_AT)
    through(always, LOST_AT)
    row, other = (
        next(s for s in b.fakes.history.scores(RUN).series.values() if s.key.benchmark == "sums")
        for b in (bench, always)
    )
    assert row.key == other.key
    at, there = row.row_of(LOST_AT), other.row_of(LOST_AT)
    assert at is not None
    assert there is not None
    assert row.is_whole[at]
    means = {m: s.matrices[m].means for s in (row,) for m in s.matrices}
    assert all(means[m][at] == pytest.approx(other.matrices[m].means[there], nan_ok=True) for m in means)


def test_a_screen_opens_and_ends_no_loss() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT - 100)
    bench.fakes.source.put(checkpoint(LOST_AT))
    tick(bench.world, bench.state, bench.fakes.clock.now())
    assert bench.work()
    tick(bench.world, bench.state, bench.fakes.clock.now())
    verdict = next(v for v in bench.fakes.history.reports(RUN)[-1].verdicts if v.benchmark == "sums")
    assert verdict.word is VerdictWord.SUSPECT
    assert verdict.screened is not None
    assert (verdict.screened.asked, verdict.screened.left_out) == (100, SAMPLES - 100)
    assert reason_text(verdict).endswith("screened on 100 of 400 samples, a full evaluation follows")
    assert not bench.fakes.history.incidents(RUN)
    assert not bench.firing()


def test_the_rest_comes_before_newer_checkpoints_and_decides_although_they_were_screened_since() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT - 100)
    for step in (LOST_AT, LOST_AT + 100):
        bench.fakes.source.put(checkpoint(step))
    tick(bench.world, bench.state, bench.fakes.clock.now())
    assert bench.work(at_once=2)
    bench.settle()
    assert bench.kinds()[-4:] == [
        f"{LOST_AT} screen",
        f"{LOST_AT + 100} screen",
        f"{LOST_AT} rest sums",
        f"{LOST_AT + 100} rest sums",
    ]
    assert [e.opened_step for e in bench.fakes.history.incidents(RUN)] == [LOST_AT]
    assert len(bench.firing()) == 1


def test_a_record_that_is_judged_again_after_a_crash_changes_nothing() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    rest = next(plan for plan in bench.plans if plan.suite.part is not None and plan.suite.part.is_rest)
    before = bench.fakes.history.record(rest.id)
    alerts = list(bench.fakes.alerting.alerts)
    review(bench.world, bench.records[rest.id], bench.fakes.clock.now())
    assert bench.fakes.history.record(rest.id) == before
    assert bench.fakes.alerting.alerts == alerts
    assert not bench.work()


def test_a_rest_that_cannot_be_asked_is_a_blind_spot_and_not_a_score() -> None:
    bench = Bench(lost_at=LOST_AT, fails=lambda plan: plan.suite.part is not None and plan.suite.part.is_rest)
    through(bench, LOST_AT)
    assert bench.words(LOST_AT) == {"sums": VerdictWord.MISSING, "facts": bench.words(LOST_AT)["facts"]}
    last = bench.fakes.alerting.alerts[-1]
    assert (alert_subject_text(last.subject), last.step, last.state) == ("sums", LOST_AT, AlertState.FIRING)


def test_a_rest_whose_screen_is_gone_says_so() -> None:
    bench = Bench(lost_at=LOST_AT)
    through(bench, LOST_AT)
    rest = next(plan for plan in bench.plans if plan.suite.part is not None and plan.suite.part.is_rest)
    lonely = Bench()
    report = review(lonely.world, bench.record_of(rest), bench.fakes.clock.now()).report
    assert [(v.word, "first part" in reason_text(v)) for v in report.verdicts] == [(VerdictWord.MISSING, True)]


def test_what_was_saved_is_what_was_not_asked() -> None:
    bench = Bench()
    through(bench, 2400)
    reports = sorted(bench.fakes.history.reports(RUN), key=lambda r: r.created_at)
    newest = {(r.step, v.benchmark): v for r in reports for v in r.verdicts}
    everything = 24 * 2 * SAMPLES
    saved = everything - sum(bench.asked.values())
    assert saved > everything / 4
    amounts = f"{saved:,} samples, {saved * 12:,} tokens and {duration_text(saved * 0.1)}"
    assert savings_text(newest.values()).endswith(f" of 48 results, which saved {amounts}")
    assert savings_text([replace(verdict, screened=None) for verdict in newest.values()]) == ""
