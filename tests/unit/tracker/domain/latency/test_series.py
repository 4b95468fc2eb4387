"""Which latencies may be compared."""

from dataclasses import replace
from typing import Any

import pytest

from tests.records import forgetting_run
from tracker.domain.latency.series import series_of

RECORD = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0]
PLAN, ENGINE = RECORD.plan, RECORD.engine


@pytest.mark.parametrize("change", [{"niceness": 10}, {"gpu_memory_utilization": 0.3}])
def test_another_pace_begins_a_new_series(change: dict[str, Any]) -> None:
    changed = replace(RECORD, plan=replace(PLAN, serve=replace(PLAN.serve, **change)))
    assert series_of(changed) != series_of(RECORD)


def test_kernels_that_are_independent_of_the_batch_begin_a_new_series() -> None:
    assert ENGINE is not None
    changed = replace(RECORD, engine=replace(ENGINE, is_batch_invariant=True))
    assert series_of(changed) != series_of(RECORD)
