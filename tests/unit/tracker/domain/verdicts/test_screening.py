"""A screen and its rest: how they become one record, what follows from a suspicion, and how it is shown."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
from rich.console import Console

from dashboards.charts.run import _score_points
from eval_jobs.errors import EvaluateError
from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.types import BenchmarkFailure, EvalRecord, EvalResult, Screen
from tests.comparisons import suspicious
from tests.outlines import stored_outline
from tests.records import checkpoint_of
from tests.unit.tracker.domain.making import record_of
from tests.verdicts import outline_of
from tracker.adapters.database.codec import from_json, to_json
from tracker.cli.tables.render import history_table
from tracker.config import parse_config
from tracker.domain.best.retention import best_checkpoints
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Baseline, Report, Screened, Verdict, VerdictWord
from tracker.domain.scores.run_scores import RunScores, scores_of, with_record
from tracker.domain.scores.sample_columns import columns_of
from tracker.domain.tracking.batch import tracking_batch
from tracker.domain.verdicts.screening import (
    Screening,
    joined,
    neighbours_to_ask,
    savings_text,
    to_ask_whole,
)

SCREEN = Screen(samples=4)
PART = Screened(asked=4, left_out=6, tokens=400, seconds=2.0, margin=0.02)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCORES = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]


def whole_record(step: int = 600) -> EvalRecord:
    return record_of(step, {"sums": SCORES, "facts": SCORES})


def parts_of(record: EvalRecord, names: tuple[str, ...] = ("sums",)) -> tuple[EvalRecord, EvalRecord]:
    """Return the same results in two parts: the first four samples of each, and the others of the named ones."""
    plan = screen_plan(record.plan, SCREEN)
    results = [o for o in record.outcomes if isinstance(o, EvalResult)]
    screen = replace(
        record,
        plan=plan,
        outcomes=tuple(replace(r, samples=r.samples[:4], left_out=6, input_tokens=4, output_tokens=1) for r in results),
    )
    rest = replace(
        record,
        plan=rest_plan(plan, names),
        outcomes=tuple(
            replace(r, samples=r.samples[4:], left_out=4, input_tokens=6, output_tokens=2)
            for r in results
            if r.benchmark in names
        ),
    )
    return screen, rest


def results_of(record: EvalRecord) -> list[EvalResult]:
    return [o for o in record.outcomes if isinstance(o, EvalResult)]


def verdict(word: VerdictWord, screened: Screened | None = None, **more: object) -> Verdict:
    fields = {"benchmark": "sums", "reason": None, "score": 0.61, "stderr": 0.1, "coverage": 1.0, "alpha_test": 0.0}
    return Verdict(word=word, screened=screened, **fields | more)  # type: ignore[arg-type]


def report(*verdicts: Verdict, step: int = 600) -> Report:
    checkpoint = checkpoint_of("run", step)
    return Report(run_id="run", step=step, plan_id=f"p{step}", verdicts=verdicts, checkpoint=checkpoint, created_at=NOW)


def test_both_parts_together_hold_every_sample_once() -> None:
    whole = whole_record()
    screen, rest = parts_of(whole)
    record = joined(screen, rest)
    sums, facts = record.outcomes
    assert isinstance(sums, EvalResult)
    assert isinstance(facts, EvalResult)
    assert sums.samples == next(o.samples for o in whole.outcomes if isinstance(o, EvalResult))
    assert (sums.left_out, sums.input_tokens, sums.output_tokens) == (0, 10, 3)
    assert (facts.left_out, len(facts.samples)) == (6, 4)
    assert [b.name for b in record.plan.suite.benchmarks] == ["sums", "facts"]
    assert record.plan.id == rest.plan.id


def test_what_was_joined_before_stays_when_another_part_comes() -> None:
    screen, of_sums = parts_of(whole_record(), ("sums",))
    _, of_facts = parts_of(whole_record(), ("facts",))
    both = joined(joined(screen, of_sums), of_facts)
    assert [o.left_out for o in both.outcomes if isinstance(o, EvalResult)] == [0, 0]
    assert joined(both, of_sums).outcomes == both.outcomes


def test_the_whole_result_of_a_checkpoint_stays_in_whatever_order_the_parts_come() -> None:
    screen, rest = parts_of(whole_record())
    whole = joined(screen, rest)
    earlier = replace(whole, finished_at=screen.finished_at - timedelta(hours=1))
    for records in permutations((screen, earlier, whole_record(500))):
        pairs = [(r, {o.benchmark: columns_of(o.samples) for o in results_of(r)}) for r in records]
        one_by_one = RunScores(run_id="run")
        for record, columns in pairs:
            one_by_one = with_record(one_by_one, record, columns)
        for scores in (one_by_one, scores_of("run", pairs)):
            left_out = {key.benchmark: s.left_out.tolist() for key, s in scores.series.items()}
            assert left_out == {"sums": [0, 0], "facts": [0, 6]}


def test_a_part_that_failed_leaves_no_score() -> None:
    screen, rest = parts_of(whole_record())
    failure = BenchmarkFailure(benchmark="sums", fingerprint="f", code="E-X", message="gone", hint="", retryable=False)
    record = joined(screen, replace(rest, outcomes=(failure,)))
    assert record.outcomes[0] == failure


def test_parts_of_different_versions_are_not_put_together() -> None:
    screen, rest = parts_of(whole_record())
    other = tuple(replace(o, fingerprint="another") for o in rest.outcomes)
    outcome = joined(screen, replace(rest, outcomes=other)).outcomes[0]
    assert isinstance(outcome, BenchmarkFailure)
    assert outcome.code == EvaluateError.code


def test_only_a_suspicious_part_is_asked_whole() -> None:
    words = [VerdictWord.SUSPECT, VerdictWord.INCONCLUSIVE, VerdictWord.EQUIVALENT]
    named = [replace(verdict(word, PART), benchmark=word) for word in words]
    assert to_ask_whole(report(*named, verdict(VerdictWord.SUSPECT))) == ("suspect",)


def test_a_suspicious_whole_result_asks_for_those_that_it_is_held_against() -> None:
    comparison = suspicious(300, 400, pooled_steps=(500, 600))
    suspect = verdict(VerdictWord.SUSPECT, comparisons=(comparison,))
    wanted = {300: ("sums",), 400: ("sums",), 500: ("sums",)}
    assert neighbours_to_ask(report(suspect)) == wanted
    assert not neighbours_to_ask(report(replace(suspect, word=VerdictWord.INCONCLUSIVE)))
    assert not neighbours_to_ask(report(replace(suspect, screened=PART)))
    pinned = replace(suspect, comparisons=(replace(comparison, baseline=Baseline.PINNED),))
    assert not neighbours_to_ask(report(pinned))


def test_a_part_is_another_metric_and_no_point_of_the_curve_and_no_best_checkpoint() -> None:
    screen, rest = parts_of(whole_record())
    keys = {m.key for m in tracking_batch(screen, report()).metrics}
    assert {"screen/sums", "screen/facts"} <= keys
    assert not any(key.startswith(("bench/", "truncated/")) for key in keys)
    keys = {m.key for m in tracking_batch(joined(screen, rest), report()).metrics}
    assert {"bench/sums", "truncated/sums", "screen/facts"} <= keys
    assert "truncated/facts" not in keys
    assert not list(_score_points(600, verdict(VerdictWord.INCONCLUSIVE, PART)))
    assert list(_score_points(600, verdict(VerdictWord.INCONCLUSIVE)))
    written = tracking_batch(screen, report(verdict(VerdictWord.INCONCLUSIVE, PART))).verdicts
    assert [v.score for v in written] == [None]
    columns = {o.benchmark: columns_of(o.samples) for o in screen.outcomes if isinstance(o, EvalResult)}
    assert not best_checkpoints(scores_of("run", [(screen, columns)]))


def test_the_history_marks_what_rests_on_a_part_and_says_what_was_saved() -> None:
    reports = [report(verdict(VerdictWord.INCONCLUSIVE), step=500), report(verdict(VerdictWord.EQUIVALENT, PART))]
    out = io.StringIO()
    Console(file=out, width=100).print(history_table(reports))
    assert "0.610 ± 0.020* =" in out.getvalue()
    assert "* screened only: 1 of 2 results, which saved 6 samples, 600 tokens and 3.0 s" in out.getvalue()


def test_nothing_is_said_of_savings_where_nothing_was_screened() -> None:
    assert savings_text([verdict(VerdictWord.INCONCLUSIVE)]) == ""
    unreported = savings_text([verdict(VerdictWord.INCONCLUSIVE, replace(PART, tokens=None))])
    assert "screened only" in unreported
    assert "tokens" not in unreported


def test_a_part_survives_being_written_down() -> None:
    one = report(verdict(VerdictWord.SUSPECT, PART), verdict(VerdictWord.FIRST))
    assert from_json(Report, to_json(one)) == one
    outline = stored_outline(replace(one, created_at=NOW))
    assert [v.screened for v in outline.verdicts] == [PART, None]
    assert outline == outline_of(one)


def test_a_part_and_the_whole_are_compared_on_what_both_were_asked() -> None:
    screen, _ = parts_of(whole_record(600))
    after = whole_record(700)
    view = compare_parts([(screen, after)], Policy(), RunNoise())
    assert [(b.before.mean, b.after.mean, b.comparison.n_common) for b in view.benchmarks] == [(0.75, 0.75, 4)] * 2


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("", None),
        ("[suite.screen]\nevery = 3\n", None),
        ("[suite.screen]\nsamples = 60\n", Screening(screen=Screen(samples=60), every=50, first=14)),
        (
            "[suite.screen]\nshare = 0.1\nevery = 5\nfirst = 8\n",
            Screening(screen=Screen(samples=250, share=0.1), every=5, first=8),
        ),
        (
            "[suite.screen]\nshare = 0.1\nsamples = 3\n",
            Screening(screen=Screen(samples=20, share=0.1), every=50, first=14),
        ),
    ],
)
def test_it_is_off_until_a_size_is_set(table: str, expected: Screening | None) -> None:
    text = f'[run]\nname = "r"\noutput_dir = "out"\n{table}[[benchmark]]\nbenchmark = "gsm8k"\n'
    config = parse_config(text, Path("/here/tracker.toml"))
    assert config.suite.screen.to_screening() == expected
    assert config.to_suite({}).part is None
