"""What a watcher asks of its database while nothing happens, and how soon it sees what another process wrote."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlalchemy import event

from eval_jobs.queue_types import QueueState
from tests.fakes.clock import FakeClock
from tests.fakes.source import FakeSource
from tests.records import forgetting_run
from tracker.api.opening import open_project
from tracker.app.daemon import StopRule, watch
from tracker.app.news import LOOK_S
from tracker.app.world import Tick, WatchState

SETTLED_S, IDLE_S = 20, 120
CONFIG = """
[run]
name = "run"
output_dir = "out"
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[tracking]
enabled = false
"""


def test_an_idle_run_costs_a_statement_in_ten_seconds_and_sees_a_foreign_plan_at_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    (tmp_path / "tracker.toml").write_text(CONFIG)
    project, clock = open_project(tmp_path / "tracker.toml"), FakeClock()
    asked: list[datetime] = []
    waiting: list[int] = []
    other = open_project(tmp_path / "tracker.toml").world()
    event.listen(project.database, "before_cursor_execute", lambda *_: asked.append(clock.now()))
    began, plan = clock.now(), forgetting_run(run_id="run", checkpoints=2, samples=4).records[0].plan

    def passed_s() -> float:
        return (clock.now() - began).total_seconds()

    def show(_: Tick, queued: QueueState) -> None:
        clock.advance(1.0)
        waiting.append(len(queued.waiting))
        if passed_s() == SETTLED_S + IDLE_S:
            other.queue.add(plan, now=clock.now())

    world = replace(project.world(), source=FakeSource())  # whose time passes with each pass
    stop = StopRule(training_ended=lambda: False, quiet_s=1.0, is_superseded=lambda: waiting[-1] > 0)
    watch(world, WatchState(), clock=clock, keep_workers=lambda: None, stop=stop, show=show)
    idle = [at for at in asked if SETTLED_S < (at - began).total_seconds() < SETTLED_S + IDLE_S]
    assert 0 < len(idle) <= IDLE_S / LOOK_S.total_seconds()
    assert passed_s() <= SETTLED_S + IDLE_S + LOOK_S.total_seconds() + 2
    for one in (world, other):
        one.close()
