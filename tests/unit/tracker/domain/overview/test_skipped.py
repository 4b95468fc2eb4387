"""What is shown of checkpoints that were skipped."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

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


def test_what_was_evaluated_after_all_is_no_gap_and_what_was_saved_again_and_broken_is() -> None:
    vanished, broken_later = gap(100, "E-CKPT-VANISHED"), replace(gap(100, "E-CKPT"), seen_at=NOW + timedelta(hours=1))
    gaps = [gap(100), vanished, gap(200), broken_later]
    assert open_gaps([report(100), report(300)], gaps) == (broken_later, gap(200))
    nameless = gap(0, "E-CKPT-NAMES")
    assert open_gaps([], [nameless]) == (nameless,)
    assert open_gaps([report(100)], [nameless]) == ()


def test_one_line_tells_of_any_number() -> None:
    assert skipped_text([gap(300)]).startswith("step 300: 20 newer checkpoints were waiting (")
    assert skipped_text([gap(300), gap(100), gap(200)]).startswith("3 checkpoints, steps 100 to 300: 20 newer")
