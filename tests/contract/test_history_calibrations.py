"""The rules of `ports.History` about calibrations, over the fake, SQLite and PostgreSQL."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from eval_jobs.types import BenchmarkFailure
from tests.contract.conftest import ReopenHistory
from tests.records import forgetting_run, without_samples
from tracker.domain.records.calibration import AskedTwice, Calibration

RECORDS = forgetting_run(checkpoints=3, samples=4).records
NOW = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
ASKED = AskedTwice(
    benchmark="sums \u5386",
    fingerprint="f",
    planned=80,
    samples=79,
    flips=3,
    other_texts=5,
    squares=2.25,
    largest=1.0,
    first_mean=0.1,
    second_mean=1 / 3,
    p_shift=1e-300,
)
FAILURE = BenchmarkFailure(benchmark="facts", fingerprint="g", code="E", message="gone", hint="again", retryable=True)


@pytest.fixture
def reopen(reopen_history: ReopenHistory) -> ReopenHistory:
    return reopen_history


def calibration(number: int, at: datetime = NOW) -> Calibration:
    plan = replace(RECORDS[0].plan, id=f"c{number}", calibration=number)
    return Calibration(
        plan=plan,
        engine=RECORDS[0].engine,
        benchmarks=(ASKED,),
        failures=(FAILURE,),
        started_at=at - timedelta(minutes=2),
        finished_at=at,
    )


def test_a_new_history_has_no_calibration(reopen: ReopenHistory) -> None:
    assert reopen().calibrations() == ()


def test_calibrations_come_back_whole_the_oldest_first_whatever_their_run_and_zone(reopen: ReopenHistory) -> None:
    tokyo = calibration(1, NOW.astimezone(timezone(timedelta(hours=9))) - timedelta(seconds=1))
    other = calibration(3)
    checkpoint = replace(other.plan.checkpoint, run_id="another")
    other = replace(other, plan=replace(other.plan, checkpoint=checkpoint), engine=None, benchmarks=())
    for one in (other, calibration(2), tokyo):
        reopen().append_calibration(one)
    assert reopen().calibrations() == (tokyo, calibration(2), other)


def test_the_same_calibration_again_replaces_it(reopen: ReopenHistory) -> None:
    reopen().append_calibration(replace(calibration(1), benchmarks=()))
    reopen().append_calibration(calibration(1))
    assert reopen().calibrations() == (calibration(1),)


def test_a_calibration_is_no_record_and_begins_no_run(reopen: ReopenHistory) -> None:
    reopen().append_calibration(calibration(1))
    history = reopen()
    assert history.runs() == ()
    assert history.records(RECORDS[0].plan.checkpoint.run_id) == ()


def test_one_record_can_be_read_without_its_samples(reopen: ReopenHistory) -> None:
    for record in RECORDS:
        reopen().append(record)
    assert reopen().bare_record(RECORDS[1].plan.id) == without_samples(RECORDS[1])
    assert reopen().bare_record("nothing") is None
