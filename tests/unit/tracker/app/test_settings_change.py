"""What is asked when settings change while a run is watched: only what is missing."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from eval_jobs.types import EvalRecord, ProbeOutcome, Screen
from tests.unit.tracker.app.changing_bench import LOAD, QUESTIONS, RUN, Changing
from tracker.app.commands.gate import gathered
from tracker.app.commands.once import evaluate_once
from tracker.domain.gate.rules import GatePolicy, LatencyLimit
from tracker.domain.records.losses import Closing, Measure
from tracker.domain.records.types import LatencyMetric, VerdictWord
from tracker.domain.verdicts.screening import Screening

STEPS = tuple(range(100, 2001, 100))
ONE, TWO = {"sums": 8}, {"sums": 8, "facts": 8}
FEW = STEPS[:7]
LOST_AT = 500


def is_right(benchmark: str, number: int, step: int, _: int) -> bool:
    """`sums` is learned and stays, `facts` is lost."""
    return number < (4 if benchmark == "facts" and step >= LOST_AT else 36)


def test_a_new_benchmark_asks_every_checkpoint_its_questions_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*STEPS)
    run.watch(ONE)
    assert run.asked == Counter({(step, "sums"): QUESTIONS for step in STEPS})
    run.watch(TWO)
    assert run.asked == Counter({(step, "facts"): QUESTIONS for step in STEPS})
    (said,) = [one.getMessage() for one in caplog.records if "results missing" in one.getMessage()]
    assert said == (
        "settings changed: results missing at 20 evaluated checkpoints: facts (20 x 40 questions)"
        "; starts in 10.0 min, or now with `tracker watch --yes`; undo the change to ask nothing"
    )
    run.watch(TWO)
    assert not run.asked, "a restart asks nothing"


def test_a_checkpoint_that_is_being_evaluated_is_not_said_to_lack_results(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Changing(tmp_path, is_right)
    run.save(100, 200)
    run.watch(ONE)
    run.watch(TWO, wait_s=0.0, seconds=5.0, is_cut=True)
    now = run.fakes.clock.now()
    assert run.queue.claim(worker="w", now=now, lease_until=now + timedelta(hours=1)) is not None
    caplog.clear()
    run.watch({**TWO, "more": 8}, seconds=5.0, is_cut=True)
    (said,) = [one.getMessage() for one in caplog.records if "results missing" in one.getMessage()]
    assert "results missing at 1 evaluated checkpoint: facts (1 x 40 questions), more (1 x 40 questions)" in said


def test_a_checkpoint_that_was_asked_in_two_steps_is_judged_as_if_in_one(tmp_path: Path) -> None:
    folders = [tmp_path / "twice", tmp_path / "once"]
    for folder in folders:
        folder.mkdir()
    twice, once = (Changing(folder, is_right) for folder in folders)
    for run, settings in ((twice, ONE), (once, TWO)):
        for step in FEW:
            run.save(step)
            run.watch(settings)
    twice.watch(TWO, wait_s=0.0)
    for step, report in once.reports().items():
        other = twice.reports()[step]
        assert other.verdicts == report.verdicts, step
        assert other.latency == report.latency, step
    assert twice.words("facts")[FEW[-1]] is VerdictWord.REGRESSED
    opened = [[(e.benchmark, e.opened_step, e.onset_step) for e in run.history.incidents(RUN)] for run in (twice, once)]
    assert opened[0] == opened[1]
    newest = [max(run.fakes.tracking.records, key=lambda one: one[1].created_at)[0] for run in (twice, once)]
    assert [[o.benchmark for o in record.outcomes] for record in newest] == [["sums", "facts"]] * 2


def test_other_settings_of_all_benchmarks_time_no_load_again(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*FEW)
    run.watch(TWO)
    timed = {step: report.latency for step, report in run.reports().items()}
    assert run.asked
    run.watch({"sums": 16, "facts": 16}, wait_s=0.0)
    assert set(run.asked) == {(step, name) for step in FEW for name in TWO}
    assert {step: report.latency for step, report in run.reports().items()} == timed
    probes = Counter(record.plan.checkpoint.step for record in run.history.records(RUN) if record.probes)
    assert probes == dict.fromkeys(FEW, 1)


def test_a_broken_checkpoint_counts_in_no_baseline_of_a_benchmark_that_is_added_later(tmp_path: Path) -> None:
    run = Changing(tmp_path, lambda _, number, step, __: number < 36 and step != LOST_AT)
    run.save(*FEW)
    run.watch(TWO)
    run.watch({**TWO, "more": 8}, wait_s=0.0)
    losses = run.history.incidents(RUN)
    ends = {one.benchmark: (one.onset_step, one.closed_by) for one in losses if one.measure is Measure.SCORE}
    assert ends == dict.fromkeys(("", "sums", "facts", "more"), (LOST_AT, Closing.TRANSIENT))
    assert {one.lost_since for one in run.reports()[LOST_AT].findings} == {LOST_AT}
    for step, report in run.reports().items():
        for verdict in report.verdicts:
            steps = [step for one in verdict.comparisons for step in one.baseline_steps]
            assert LOST_AT not in steps or step == LOST_AT + 100, (step, verdict)


def test_a_change_that_is_undone_in_time_asks_nothing(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*FEW)
    run.watch(ONE)
    before = run.reports()
    assert run.asked
    run.watch({"sums": 16}, seconds=590.0)
    run.watch(ONE)
    assert not run.asked
    assert run.reports() == before


def test_a_checkpoint_whose_weights_are_deleted_meanwhile_is_not_asked_again(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*FEW)
    run.watch(ONE)
    assert run.asked
    run.given_up = frozenset({run.history.records(RUN)[1].plan.checkpoint.uri})
    run.watch(TWO)
    assert set(run.asked) == {(step, "facts") for step in FEW if step != FEW[1]}


def test_new_checkpoints_do_not_wait_for_the_confirmation_and_are_asked_first(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*FEW)
    run.watch(ONE)
    assert run.asked
    run.save(2100)
    run.watch(TWO, seconds=300.0)
    assert run.asked == {(2100, "sums"): QUESTIONS, (2100, "facts"): QUESTIONS}
    run.watch(TWO, seconds=300.0)
    assert not run.asked, "the time begins again with every start"
    run.watch(TWO, wait_s=0.0, seconds=1.0)
    assert set(run.asked) == {(step, "facts") for step in FEW}


def test_a_failure_is_no_known_result(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*STEPS[:3])
    run.evaluator.fails = frozenset({"facts"})
    run.watch(TWO)
    assert run.asked == {(step, "sums"): QUESTIONS for step in STEPS[:3]}
    run.evaluator.fails = frozenset()
    run.watch(TWO | {"more": 8})
    assert run.asked == {(step, name): QUESTIONS for step in STEPS[:3] for name in ("facts", "more")}
    assert VerdictWord.MISSING not in run.words("facts").values()


def test_the_same_weights_saved_again_are_not_asked_again(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(*STEPS[:3])
    run.watch(ONE)
    assert run.asked
    final = replace(run.history.records(RUN)[-1].plan.checkpoint, step=301, uri="/state/pins/final", source_uri="/out")
    run.fakes.source.put(final)
    run.watch(ONE)
    assert not run.asked
    verdict = run.reports()[301].verdicts[0]
    assert verdict.score == run.reports()[300].verdicts[0].score
    assert run.reports()[301].latency == run.reports()[300].latency
    run.watch(ONE)
    assert [record.plan.checkpoint.step for record in run.history.records(RUN)] == [100, 200, 300, 301]


def test_weights_whose_answers_had_errors_are_asked_again_under_their_new_name(tmp_path: Path) -> None:
    def fails_once(benchmark: str, number: int, step: int, tokens: int) -> bool:
        if step == 100 and number == 0:
            raise ValueError("the server went away")
        return is_right(benchmark, number, step, tokens)

    run = Changing(tmp_path, fails_once)
    run.save(100)
    run.watch(ONE)
    assert run.asked
    run.fakes.source.put(replace(run.history.records(RUN)[0].plan.checkpoint, step=101, uri="/state/pins/final"))
    run.watch(ONE)
    assert run.asked == {(101, "sums"): QUESTIONS}


def test_only_latency_is_measured_if_only_that_is_missing(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(100)
    run.watch(ONE)
    assert run.asked
    run.load = replace(LOAD, requests=8)
    run.watch(ONE)
    assert not run.asked
    (newest,) = [record for record in run.history.records(RUN) if record.probes and record.probes[0].load == run.load]
    assert [result.benchmark for result in newest.results] == ["sums"]


def test_a_gate_takes_over_what_is_known_of_the_weights_and_asks_the_rest(tmp_path: Path) -> None:
    run = Changing(tmp_path, is_right)
    run.save(100)
    run.watch(ONE)
    assert run.asked
    own = run.history.records(RUN)[0]
    apart = replace(own.plan.checkpoint, run_id="gate/merged", step=0, uri="/state/pins/merged")
    for settings, asked in ((ONE, {}), (ONE, {}), (TWO, {(0, "facts"): QUESTIONS}), (TWO, {})):
        done = evaluate_once(apart, run.world(settings), tools=run.tools(), progress=lambda _: None, reuse=True)
        assert run.asked == asked
        record = done.results[0][0]
        assert [len(result.samples) for result in record.results] == [QUESTIONS] * len(settings)
        assert record.plan.checkpoint == apart
        assert gated_latency(record, run) == own.probes
    evaluate_once(apart, run.world(ONE), tools=run.tools(), progress=lambda _: None)
    assert run.asked == {(0, "sums"): QUESTIONS}, "`tracker evaluate` asks everything"


def gated_latency(record: EvalRecord, run: Changing) -> tuple[ProbeOutcome, ...]:
    policy = GatePolicy(latency=(LatencyLimit(metric=LatencyMetric.TTFT, quantile=0.5, max_ms=9.0),))
    return gathered(record, record, run.history, policy).candidate.probes


def test_a_screened_run_screens_the_new_benchmark_and_asks_the_rest_where_it_looks_lost(tmp_path: Path) -> None:
    screening = Screening(screen=Screen(samples=20), every=50, first=2)
    run = Changing(tmp_path, lambda name, number, step, _: number < (36 if step < 900 or name == "sums" else 4))
    run.screening = screening
    run.save(*STEPS[:10])
    run.watch(ONE)
    assert run.asked == {(step, "sums"): QUESTIONS if step <= 200 else 20 for step in STEPS[:10]}
    run.watch(TWO, wait_s=0.0)
    asked = run.asked
    assert {name for _, name in asked} == {"facts"}
    assert all(asked[step, "facts"] == (QUESTIONS if step <= 200 else 20) for step in STEPS[:7])
    assert asked[1000, "facts"] == QUESTIONS, "its screen was suspicious"
    assert run.words("facts")[1000] is VerdictWord.REGRESSED
    assert run.words("sums").keys() == run.words("facts").keys()
    run.watch(TWO, wait_s=0.0)
    assert not run.asked
