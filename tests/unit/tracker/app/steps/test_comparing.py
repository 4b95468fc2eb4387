"""What is read of a run before it is compared with another."""

from dataclasses import replace
from datetime import timedelta

from eval_jobs.types import EvalRecord
from tests.compared_runs import COST
from tests.fakes.history import FakeHistory
from tests.unit.tracker.domain.judging import right
from tests.unit.tracker.domain.making import START, record_of
from tracker.app.steps.comparing import parts_to_compare, run_to_compare
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import CurvePoint, Report, VerdictWord


def test_a_discarded_checkpoint_is_left_out_but_has_cost_something() -> None:
    history = FakeHistory()
    for step, digest, after_s in ((100, "a", 1), (200, "b", 2), (300, "c", 3), (200, "again", 4)):
        record = record_of(step, {"sums": right(9)}, digest=digest, ready_at=START + timedelta(seconds=after_s))
        history.append(replace(record, cost=COST))
    history.append_stated_points(
        "run", [CurvePoint(key="train/num_tokens", step=step, value=10.0 * step) for step in (100, 200, 300)]
    )
    run = run_to_compare("run", history)
    assert [record.plan.checkpoint.digest for record in run.records] == ["a", "again"]
    assert run.scores.of("sums")[0].steps == (100, 200)
    assert run.tokens == {100: 1000.0, 200: 2000.0}
    assert run.cost is not None
    assert run.cost.wall_s == 4 * COST.wall_s


def test_a_comparison_in_parts_is_that_of_everything() -> None:
    history, reports = FakeHistory(), []
    for step, lost in ((100, 0), (200, 12)):
        record = record_of(step, {f"b{k}": right(90 - lost * (k == 30)) for k in range(45)})
        history.append(record)
        reports.append(report_of(record))
    before, after = (history.record(report.plan_id) for report in reports)
    assert before is not None
    assert after is not None
    parts = list(parts_to_compare((reports[0], reports[1]), history))
    assert [len(one.outcomes) for pair in parts for one in pair] == [5] * 18
    expected = compare_parts([(before, after)], Policy(), RunNoise())
    assert compare_parts(parts, Policy(), RunNoise()) == expected
    assert expected.benchmarks[30].word is VerdictWord.REGRESSED


def report_of(record: EvalRecord) -> Report:
    checkpoint = record.plan.checkpoint
    return Report(
        run_id=checkpoint.run_id,
        step=checkpoint.step,
        plan_id=record.plan.id,
        verdicts=(),
        checkpoint=checkpoint,
        created_at=START,
    )
