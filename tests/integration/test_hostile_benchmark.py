"""The benchmark of hostile neighbours runs, on a small scale."""

from benchmarks.hostile.queue import measure


def test_workers_that_empty_a_queue_together_lose_and_double_no_plan() -> None:
    found = measure(plans=30, workers=2)
    assert (found.plans, found.lost, found.doubled) == (30, 0, 0)
