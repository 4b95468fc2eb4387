import statistics

import pytest

from eval_jobs.probe.client.prompts import arrivals_s


def test_requests_arrive_at_the_rate_at_random_times_that_a_seed_decides() -> None:
    times = arrivals_s(400, 5.0, seed=1)
    assert times == arrivals_s(400, 5.0, seed=1) != arrivals_s(400, 5.0, seed=2)
    assert times[-1] == pytest.approx(80.0)
    gaps = [b - a for a, b in zip((0.0, *times), times, strict=False)]
    assert min(gaps) > 0
    assert statistics.pstdev(gaps) == pytest.approx(0.2, rel=0.2)  # of exponential gaps as large as their mean


def test_no_request_arrives_at_no_time() -> None:
    assert arrivals_s(0, 5.0, seed=1) == ()
