"""Checkpoints of which a part was asked first have two records; the report loses nothing of either."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dashboards.data.run import newest_records
from dashboards.page.checkpoint import Sources
from dashboards.page.run import read_run
from dashboards.views.measured import measured
from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.types import Cost, EvalRecord, EvalResult, Screen
from tests.fakes.history import FakeHistory
from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run
from tracker.domain.records.policy import Policy

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RUN = forgetting_run(checkpoints=3)


def _cost(seconds: float) -> Cost:
    return Cost(loading_s=0.0, evaluating_s=seconds, probing_s=0.0)


def _screen_and_both(later: timedelta) -> tuple[EvalRecord, EvalRecord]:
    """Return the newest record as that of a screen, with latencies, and as that of both parts, without."""
    whole = RUN.records[-1]
    assert whole.probes
    parts = tuple(replace(o, left_out=60) if isinstance(o, EvalResult) else o for o in whole.outcomes)
    plan = screen_plan(whole.plan, Screen(samples=20))
    screen = replace(whole, plan=plan, outcomes=parts, cost=_cost(40.0))
    rest = rest_plan(plan, [b.name for b in whole.plan.suite.benchmarks])
    both = replace(whole, plan=rest, probes=(), finished_at=whole.finished_at + later, cost=_cost(60.0))
    return screen, both


@pytest.mark.parametrize("later", [timedelta(seconds=5), timedelta()])
def test_the_latency_of_a_screen_stays_in_the_report_once_everything_was_asked(later: timedelta) -> None:
    screen, both = _screen_and_both(later)
    for records in ([*RUN.records[:-1], screen, both], [*RUN.records[:-1], both, screen]):
        *_, newest = newest_records(records)
        assert (newest.plan, newest.probes) == (both.plan, screen.probes)


def test_latencies_of_other_weights_are_not_taken_over() -> None:
    screen, both = _screen_and_both(timedelta(seconds=5))
    other = replace(screen.plan, checkpoint=replace(screen.plan.checkpoint, digest="other"))
    *_, newest = newest_records([replace(screen, plan=other), both])
    assert newest.probes == ()


def test_the_cost_of_a_run_is_that_of_both_parts() -> None:
    history = FakeHistory()
    for record in _screen_and_both(timedelta(seconds=5)):
        history.append(record)
    sources = Sources(history=history, queue=FakeQueue(), policy=Policy())
    facts = dict(measured(read_run(RUN.run_id, sources, now=NOW)).facts)
    assert facts["Cost"].startswith("1 checkpoint, 1.7 min")
