"""What the SQL history does beyond the port: reading little, and saying what is broken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.queue.database_sql import open_database
from tests.records import RUN, forgetting_run, without_samples
from tests.score_tables import table_of, table_of_records
from tracker.adapters.codec import from_json, to_json
from tracker.adapters.history_sql import SqlHistory
from tracker.adapters.samples_parquet import samples_path
from tracker.domain.types import Gap, Report

RECORDED = forgetting_run(checkpoints=4, samples=4)
RECORDS = RECORDED.records


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    yield engine
    engine.dispose()


@pytest.fixture
def history(engine: Engine, tmp_path: Path) -> SqlHistory:
    return SqlHistory(engine, tmp_path / "samples")


def test_a_new_record_does_not_read_the_older_ones_again(history: SqlHistory, tmp_path: Path) -> None:
    history.append(RECORDS[0])
    assert len(history.scores(RUN).of("facts")[0].steps) == 1
    shutil.rmtree(tmp_path / "samples" / RECORDS[0].plan.id)
    history.append(RECORDS[1])
    assert table_of(history.scores(RUN)) == table_of_records(RECORDS[:2])


def test_the_list_of_records_needs_no_samples(history: SqlHistory, tmp_path: Path) -> None:
    history.append(RECORDS[0])
    shutil.rmtree(tmp_path / "samples")
    assert history.records(RUN) == (without_samples(RECORDS[0]),)


def test_a_record_that_was_replaced_within_one_tick_of_the_clock_is_read_again(history: SqlHistory) -> None:
    history.append(RECORDS[0])
    assert table_of(history.scores(RUN)) == table_of_records(RECORDS[:1])
    other = replace(RECORDS[0], outcomes=RECORDS[0].outcomes[:1])
    history.append(other)
    assert history.records(RUN) == (without_samples(other),)
    assert table_of(history.scores(RUN)) == table_of_records([other])


def test_samples_live_in_one_file_per_plan_and_benchmark_and_not_in_the_database(
    history: SqlHistory, tmp_path: Path
) -> None:
    history.append(RECORDS[0])
    folder = tmp_path / "samples" / RECORDS[0].plan.id
    assert sorted(p.name for p in folder.iterdir()) == ["facts.parquet", "reversal.parquet", "sums.parquet"]
    assert b"What colour" not in (tmp_path / "tracker.db").read_bytes()


def test_missing_samples_are_named_with_what_to_do(history: SqlHistory, tmp_path: Path) -> None:
    history.append(RECORDS[0])
    path = samples_path(tmp_path / "samples", RECORDS[0].plan.id, "sums")
    path.unlink()
    for read in (lambda: history.record(RECORDS[0].plan.id), lambda: history.scores(RUN)):
        with pytest.raises(StoreError, match="are missing") as caught:
            read()
        assert str(path) in caught.value.message
        assert "backup" in caught.value.hint


def test_a_record_whose_samples_cannot_be_written_leaves_no_row(history: SqlHistory, tmp_path: Path) -> None:
    (tmp_path / "samples").write_text("a file where the folder should be")
    with pytest.raises(StoreError):
        history.append(RECORDS[0])
    assert history.record(RECORDS[0].plan.id) is None
    (tmp_path / "samples").unlink()
    history.append(RECORDS[0])
    assert history.record(RECORDS[0].plan.id) == RECORDS[0]


def test_a_database_without_space_is_called_a_full_disk(history: SqlHistory, engine: Engine) -> None:
    with engine.connect() as connection:
        pages = connection.execute(text("PRAGMA page_count")).scalar()
        connection.execute(text(f"PRAGMA max_page_count={pages}"))
    big = replace(RECORDED.gaps[0], message="x" * 200_000)
    with pytest.raises(DiskFull, match="no space is left"):
        history.append_gap(big)
    with engine.connect() as connection:
        connection.execute(text("PRAGMA max_page_count=1000000"))
    assert history.append_gap(big) is True


def test_a_file_that_is_no_database_is_an_error_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "broken.db"
    path.write_text("not a database, but long enough to be looked at " * 100)
    engine = open_database(f"sqlite:///{path}")
    with pytest.raises(StoreError, match=r"broken\.db"):
        SqlHistory(engine, tmp_path)
    engine.dispose()


def test_a_damaged_report_is_an_error_and_not_a_traceback(history: SqlHistory, engine: Engine) -> None:
    history.append_report(RECORDED.reports[0])
    with engine.begin() as connection:
        connection.execute(text("UPDATE history_reports SET report = '{\"schema_version\": 1}'"))
    with pytest.raises(StoreError, match="a stored report is damaged"):
        history.reports(RUN)


def test_documents_of_another_schema_version_are_refused_by_number() -> None:
    text_ = to_json(RECORDED.gaps[0])
    assert from_json(Gap, text_) == RECORDED.gaps[0]
    with pytest.raises(StoreError, match="schema version 7; this program reads 1"):
        from_json(Gap, text_.replace('"schema_version":1', '"schema_version":7'))
    with pytest.raises(StoreError, match="a stored report is damaged"):
        from_json(Report, text_)
    with pytest.raises(StoreError, match="damaged"):
        from_json(Gap, text_[:20])


def test_a_report_of_the_first_schema_is_read_without_its_comparisons() -> None:
    document = json.loads(to_json(RECORDED.reports[-1]))
    assert any(v["comparisons"] for v in document["value"]["verdicts"])
    for verdict in document["value"]["verdicts"]:
        verdict["comparisons"] = [{"baseline": "previous", "baseline_step": 100, "delta": -0.5}]
        for later in ("subset", "measure", "mde_pooled", "lost_since"):
            del verdict[later]
    for later in ("findings", "episodes", "latency"):
        del document["value"][later]
    found = from_json(Report, json.dumps(document | {"schema_version": 1}))
    new = RECORDED.reports[-1]
    assert [(v.word, v.score, v.reason) for v in found.verdicts] == [(v.word, v.score, v.reason) for v in new.verdicts]
    assert all(v.comparisons == () for v in found.verdicts)
    assert from_json(Report, to_json(found)) == found


def test_half_a_surrogate_pair_in_a_message_can_be_stored(history: SqlHistory) -> None:
    gap = replace(RECORDED.gaps[0], message="the model said \ud83d")
    assert history.append_gap(gap) is True
    assert history.gaps(RUN) == (gap,)
