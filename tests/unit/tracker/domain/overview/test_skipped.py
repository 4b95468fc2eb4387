"""What is shown of checkpoints that were skipped."""

from datetime import UTC, datetime

from tests.records import checkpoint_of
from tracker.domain.overview.run import open_gaps, skipped_text
from tracker.domain.records.types import Gap, Report

NOW = datetime(2026, 3, 14, tzinfo=UTC)


def gap(step: int, code: str = "E-CKPT-SKIPPED") -> Gap:
    message = "20 newer checkpoints were waiting"
    return Gap(run_id="r", step=step, source_uri="/out", code=code, message=message, hint="", seen_at=NOW)


def report(step: int) -> Report:
    checkpoint = checkpoint_of("r", step)
    return Report(run_id="r", step=step, plan_id=str(step), verdicts=(), checkpoint=checkpoint, created_at=NOW)


def test_one_that_was_evaluated_after_all_is_no_gap_any_more() -> None:
    vanished = gap(100, "E-CKPT-VANISHED")
    assert open_gaps([report(100), report(300)], [gap(100), vanished, gap(200)]) == (vanished, gap(200))


def test_one_line_tells_of_any_number() -> None:
    assert skipped_text([gap(300)]).startswith("step 300: 20 newer checkpoints were waiting (")
    assert skipped_text([gap(300), gap(100), gap(200)]).startswith("3 checkpoints, steps 100 to 300: 20 newer")
