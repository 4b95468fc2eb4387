from dataclasses import replace
from datetime import timedelta

import pytest

from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.spending import total
from eval_jobs.types import Cost, EvalRecord, Screen
from tests.outlines import stored_outline
from tests.records import forgetting_run
from tests.unit.tracker.domain.judging import followed, run_of
from tracker.adapters.database.codec import from_json, to_json
from tracker.domain.overview.costs import cost_headline, cost_text, run_costs, with_cost_so_far
from tracker.domain.records.display import tokens_text
from tracker.domain.records.types import Report

RUN = forgetting_run(checkpoints=3, samples=10)
COST = Cost(
    loading_s=60, evaluating_s=1200, probing_s=340, input_tokens=1_000_000, output_tokens=200_000, gpu_s=1600 * 8
)
RECORDS = tuple(replace(record, cost=COST) for record in RUN.records)


def test_the_costs_of_a_run_are_its_checkpoints_and_their_sum() -> None:
    costs = run_costs(RUN.run_id, RECORDS)
    assert [(row.step, row.cost) for row in costs.checkpoints] == [(100, COST), (200, COST), (300, COST)]
    assert costs.total.wall_s == 3 * 1600
    assert costs.total.gpu_s == 3 * 12_800
    assert cost_headline(costs) == "3 checkpoints, 1.3 h, 10.7 GPU h, 3.6 M tokens"
    known = run_costs(RUN.run_id, (*RECORDS[:2], replace(RECORDS[2], cost=None)))
    assert cost_headline(known).startswith("2 checkpoints and 1 with known results, ")


def in_parts(record: EvalRecord) -> tuple[EvalRecord, EvalRecord]:
    """Return the records of its screen and of its rest, an hour later."""
    screen = replace(record, plan=screen_plan(record.plan, Screen(samples=2)))
    rest = replace(record, plan=rest_plan(screen.plan, ("sums",)), finished_at=record.finished_at + timedelta(hours=1))
    return screen, rest


def test_every_cost_says_how_much_was_asked_for_it() -> None:
    screen, rest = in_parts(RECORDS[1])
    costs = run_costs(RUN.run_id, (RECORDS[0], screen, rest))
    assert [(row.step, row.asked) for row in costs.checkpoints] == [(100, "whole"), (200, "screen"), (200, "rest")]
    assert cost_headline(costs).startswith("2 checkpoints, 1.3 h")


def test_a_rest_cost_what_its_checkpoint_cost_until_then() -> None:
    screen, rest = in_parts(RECORDS[1])
    later = replace(rest, plan=rest_plan(screen.plan, ("facts",)), finished_at=rest.finished_at + timedelta(seconds=1))
    others = (RECORDS[0], RECORDS[2], *in_parts(RECORDS[2]))
    known = (*others, screen, rest, later)
    for record in (*others[:2], screen):
        assert with_cost_so_far(record, known) is record
    assert [with_cost_so_far(r, known).cost for r in (rest, later)] == [total([COST] * 2), total([COST] * 3)]
    assert with_cost_so_far(replace(rest, cost=None), known).cost is None
    unreported = replace(screen, cost=None)
    assert with_cost_so_far(rest, (unreported, rest)).cost == COST


def test_what_nobody_told_is_not_shown_as_nothing() -> None:
    costs = run_costs(RUN.run_id, [replace(RECORDS[0], cost=Cost(loading_s=1, evaluating_s=2, probing_s=0))])
    assert cost_headline(costs) == "1 checkpoint, 3.0 s"


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (
            Cost(loading_s=3.1, evaluating_s=30, probing_s=8, input_tokens=45_000, output_tokens=200, cpu_s=82),
            "41.1 s: 3.1 s loading, 30.0 s scoring, 8.0 s latency test; 1.4 CPU min, 45.2 k tokens",
        ),
        (Cost(loading_s=0.01, evaluating_s=2, probing_s=0), "2.0 s: 2.0 s scoring"),
        (Cost(loading_s=0, evaluating_s=0, probing_s=0), "0.0 s"),
        (COST, "26.7 min: 1.0 min loading, 20.0 min scoring, 5.7 min latency test; 3.6 GPU h, 1.2 M tokens"),
    ],
)
def test_a_cost_is_one_line(cost: Cost, expected: str) -> None:
    assert cost_text(cost) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0"), (999, "999"), (1000, "1.0 k"), (45_200, "45.2 k"), (99_960, "100 k"), (999_600, "1.0 M"), (None, "-")],
)
def test_tokens_are_written_in_the_unit_that_suits_them(count: int | None, expected: str) -> None:
    assert tokens_text(count) == expected


def test_the_report_of_a_checkpoint_says_what_it_cost_and_its_outline_does_not() -> None:
    (report,) = followed([replace(run_of(150)[0], cost=COST)])
    assert report.cost == COST
    outline = stored_outline(report)
    assert outline.cost is None
    assert from_json(Report, to_json(report)).cost == COST
