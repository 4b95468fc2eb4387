"""A command that waits for workers of other machines says what to start if none evaluates anything."""

from dataclasses import replace

import pytest

from tests.fakes.queue import FakeQueue
from tests.records import forgetting_run
from tracker.cli.evaluating import IDLE_S, WorkersElsewhere

PLAN = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0].plan


class Times:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


@pytest.mark.parametrize(
    ("is_waiting", "note", "said"), [(True, "", 1), (True, "waits until 20:00", 0), (False, "", 0)]
)
def test_missing_workers_are_reported_once(
    *, is_waiting: bool, note: str, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    queue = FakeQueue()
    workers = WorkersElsewhere(queue, "start `tracker worker`", Times())
    if is_waiting:
        queue.add(PLAN, now=forgetting_run().records[0].started_at)
    if note:
        state = queue.state()
        noted = replace(state, waiting=tuple(replace(one, note=note) for one in state.waiting))
        queue.state = lambda: noted  # type: ignore[method-assign]
    for _ in range(int(IDLE_S) + 5):
        workers.check()
    assert [r.message for r in caplog.records] == ["no worker is running: start `tracker worker`"] * said
    assert IDLE_S < 5.0
