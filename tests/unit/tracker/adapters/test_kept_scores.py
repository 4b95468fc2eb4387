"""Scores in memory: only what is new is read."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalRecord, EvalResult
from tests.records import RUN, forgetting_run
from tests.score_tables import table_of, table_of_records
from tracker.adapters.kept_scores import KeptScores
from tracker.adapters.samples_parquet import samples_path, write_samples

RECORDS = forgetting_run(checkpoints=4, samples=5).records


@pytest.fixture
def kept(tmp_path: Path) -> KeptScores:
    write(tmp_path, RECORDS)
    return KeptScores(RUN, tmp_path)


def write(folder: Path, records: Sequence[EvalRecord]) -> None:
    for record in records:
        for outcome in record.outcomes:
            if isinstance(outcome, EvalResult):
                write_samples(samples_path(folder, record.plan.id, outcome.benchmark), outcome.samples)


def test_what_was_read_is_not_read_again(kept: KeptScores, tmp_path: Path) -> None:
    scores = kept.brought_up_to(RECORDS[:3])
    for record in RECORDS[:3]:
        shutil.rmtree(tmp_path / record.plan.id)
    assert kept.brought_up_to(RECORDS[:3]) is scores
    assert table_of(kept.brought_up_to(RECORDS)) == table_of_records(RECORDS)


def test_a_replaced_record_costs_reading_its_own_step_only(kept: KeptScores, tmp_path: Path) -> None:
    kept.brought_up_to(RECORDS)
    for record in (*RECORDS[:1], *RECORDS[2:]):
        shutil.rmtree(tmp_path / record.plan.id)
    newer = replace(RECORDS[1], finished_at=RECORDS[1].finished_at + timedelta(seconds=5))
    records = (RECORDS[0], newer, *RECORDS[2:])
    scores = kept.brought_up_to(records)
    assert table_of(scores) == table_of_records(records)
    assert scores.of("facts")[0].finished_at[1] == newer.finished_at


def test_samples_that_are_missing_leave_the_scores_as_they_were(kept: KeptScores, tmp_path: Path) -> None:
    before = kept.brought_up_to(RECORDS[:2])
    (path,) = (tmp_path / RECORDS[3].plan.id).glob("sums.parquet")
    aside = path.rename(tmp_path / "aside")
    with pytest.raises(StoreError, match=r"sums\.parquet are missing"):
        kept.brought_up_to(RECORDS)
    assert kept.brought_up_to(RECORDS[:2]) is before
    aside.rename(path)
    assert table_of(kept.brought_up_to(RECORDS)) == table_of_records(RECORDS)


def test_a_file_that_lost_its_mark_of_what_it_asked_is_read_like_any_other(kept: KeptScores, tmp_path: Path) -> None:
    for path in tmp_path.glob("*/*.parquet"):
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    scores = kept.brought_up_to(RECORDS)
    assert table_of(scores) == table_of_records(RECORDS)
    for series in scores.series.values():
        assert {id(asked) for asked in series.asked} == {id(series.samples)}


def test_a_result_without_samples_is_no_checkpoint_of_its_series(tmp_path: Path) -> None:
    facts = RECORDS[0].outcomes[0]
    assert isinstance(facts, EvalResult)
    record = replace(RECORDS[0], outcomes=(replace(facts, samples=()), *RECORDS[0].outcomes[1:]))
    write(tmp_path, [record])
    assert KeptScores(RUN, tmp_path).brought_up_to([record]).of("facts") == ()
