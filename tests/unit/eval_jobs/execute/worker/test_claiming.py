import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eval_jobs.execute.worker.claiming import LOOK_AGAIN_S, PinVisibility
from eval_jobs.types import EvalPlan
from tests.records import forgetting_run

NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
PLAN = forgetting_run(checkpoints=1, samples=2, trouble=False).records[0].plan


def plan_at(path: Path, run_id: str = "run") -> EvalPlan:
    return replace(PLAN, checkpoint=replace(PLAN.checkpoint, run_id=run_id, uri=str(path)))


def test_a_checkpoint_that_is_there_is_seen(tmp_path: Path) -> None:
    assert PinVisibility().sees(plan_at(tmp_path), NOW)


def test_a_single_checkpoint_that_is_gone_is_not_left_to_others(tmp_path: Path) -> None:
    visibility = PinVisibility()
    assert visibility.sees(plan_at(tmp_path / "deleted"), NOW)
    assert visibility.unseen(NOW) == ()


def test_a_run_that_is_not_mounted_is_left_to_others_for_a_while(tmp_path: Path) -> None:
    visibility = PinVisibility()
    assert not visibility.sees(plan_at(tmp_path / "pins" / "run" / "a", "run"), NOW)
    assert visibility.sees(plan_at(tmp_path, "other"), NOW)
    assert visibility.unseen(NOW) == ("run",)
    assert visibility.unseen(NOW + timedelta(seconds=LOOK_AGAIN_S)) == ()


def test_a_run_that_is_mounted_later_is_seen(tmp_path: Path) -> None:
    visibility, plan = PinVisibility(), plan_at(tmp_path / "pins" / "run" / "a")
    assert not visibility.sees(plan, NOW)
    Path(plan.checkpoint.uri).mkdir(parents=True)
    assert visibility.sees(plan, NOW)
    assert visibility.unseen(NOW) == ()


def test_what_is_not_visible_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    visibility, plan = PinVisibility(), plan_at(tmp_path / "pins" / "run" / "a")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not visibility.sees(plan, NOW)
    assert len(caplog.messages) == 1
    assert plan.checkpoint.uri in caplog.messages[0]
