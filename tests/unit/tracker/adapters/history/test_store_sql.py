"""What the SQL history does beyond the port: reading little, and saying what is broken."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, and_, select, text, update

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.types import EvalRecord, EvalResult
from tests.records import RUN, forgetting_run, without_samples
from tests.score_tables import table_of, table_of_records
from tracker.adapters.database.codec import from_json, to_json
from tracker.adapters.database.tables import INCIDENTS, TRACKER_TABLES
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.samples.packed_parquet import SampleFiles, StoredSamples
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.types import Gap, Report
from tracker.domain.scores.sample_columns import SampleColumns

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


def test_samples_live_in_files_beside_the_database(history: SqlHistory, tmp_path: Path) -> None:
    history.append(RECORDS[0])
    folder = tmp_path / "samples" / RECORDS[0].plan.id
    assert sorted(p.name.partition("-")[0] for p in folder.iterdir()) == ["answers", "scores"]
    assert len(list((tmp_path / "samples" / "questions").iterdir())) == 3
    assert b"What colour" not in (tmp_path / "tracker.db").read_bytes()


def test_missing_samples_are_named_with_what_to_do(history: SqlHistory, tmp_path: Path) -> None:
    history.append(RECORDS[0])
    (path,) = (tmp_path / "samples" / RECORDS[0].plan.id).glob("scores-*")
    path.unlink()
    for read in (lambda: history.record(RECORDS[0].plan.id), lambda: history.scores(RUN)):
        with pytest.raises(StoreError, match="missing samples file") as caught:
            read()
        assert str(path) in caught.value.message
        assert "backup" in caught.value.hint


def test_deleted_texts_are_said_and_the_scores_stay(history: SqlHistory, tmp_path: Path) -> None:
    history.append(RECORDS[0])
    for path in tmp_path.glob("samples/*/answers-*"):
        path.unlink()
    record = history.record(RECORDS[0].plan.id)
    assert record is not None
    for found, wanted in zip(record.outcomes, RECORDS[0].outcomes, strict=True):
        if isinstance(wanted, EvalResult):
            samples = tuple(replace(s, answer="", detail="") for s in wanted.samples)
            assert found == replace(wanted, samples=samples, has_texts=False)
    assert table_of(history.scores(RUN)) == table_of_records(RECORDS[:1])


def test_reading_goes_on_with_what_replaced_a_record_meanwhile(
    history: SqlHistory, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SqlHistory(engine, tmp_path / "samples")
    newer = replace(RECORDS[0], outcomes=RECORDS[0].outcomes[:1])
    history.append(RECORDS[0])

    def replaced_first(
        files: SampleFiles, plan_id: str, version: str, benchmarks: Collection[str] | None
    ) -> Mapping[str, StoredSamples]:
        monkeypatch.undo()
        history.append(newer)
        return files.samples(plan_id, version, benchmarks)

    monkeypatch.setattr(SampleFiles, "samples", replaced_first)
    assert reader.record(RECORDS[0].plan.id) == newer

    def replaced_again(
        files: SampleFiles, plan_id: str, version: str, *, only_scores: bool
    ) -> Mapping[str, SampleColumns]:
        monkeypatch.undo()
        history.append(RECORDS[0])
        return files.columns(plan_id, version, only_scores=only_scores)

    monkeypatch.setattr(SampleFiles, "columns", replaced_again)
    assert table_of(reader.scores(RUN)) == table_of_records(RECORDS[:1])


KILLED_WHILE_REPLACING = """
import os, pathlib, signal, sys
from eval_jobs.queue.database_sql import open_database, transaction
from tests.unit.tracker.adapters.history.test_store_sql import RECORDS, shorter
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.database.tables import INCIDENTS, TRACKER_TABLES

calls, last = 0, 0

def dying(call):
    def counted(*args, **kwargs):
        global calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **kwargs)
    return counted

status = 1
while status:
    last += 1
    child = os.fork()
    if child == 0:
        place = pathlib.Path(sys.argv[1]) / str(last)
        history = SqlHistory(open_database(f"sqlite:///{place}.db"), place)
        history.append(RECORDS[0])
        pathlib.Path.replace = dying(pathlib.Path.replace)
        pathlib.Path.unlink = dying(pathlib.Path.unlink)
        history.append(shorter(RECORDS[0]))
        os._exit(0)
    _, status = os.waitpid(child, 0)
print(last)
"""


def shorter(record: EvalRecord) -> EvalRecord:
    """The same plan again, asked less."""
    outcomes = [replace(o, samples=o.samples[1:]) if isinstance(o, EvalResult) else o for o in record.outcomes]
    return replace(record, outcomes=tuple(outcomes))


@pytest.mark.slow
def test_a_process_killed_at_any_file_leaves_the_old_record_or_the_new_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_REPLACING, str(tmp_path)], check=True, capture_output=True, text=True
    )
    runs = int(done.stdout)
    assert runs == 8  # killed at 3 files of questions, at answers and scores, at 2 deletions; then not at all
    found = []
    for run in map(str, range(1, runs + 1)):
        engine = open_database(f"sqlite:///{tmp_path / run}.db")
        history = SqlHistory(engine, tmp_path / run)
        record = history.record(RECORDS[0].plan.id)
        assert record in (RECORDS[0], shorter(RECORDS[0]))
        found.append(record == RECORDS[0])
        assert table_of(history.scores(RUN)) == table_of_records([record])
        history.append(shorter(RECORDS[0]))
        assert history.record(RECORDS[0].plan.id) == shorter(RECORDS[0])
        left = sorted(p.name.partition("-")[0] for p in (tmp_path / run / RECORDS[0].plan.id).iterdir())
        assert left == ["answers", "scores"]
        engine.dispose()
    assert found == [True] * 5 + [False] * 3


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
    with pytest.raises(DiskFull, match="no space left for the database"):
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


DAMAGED = {
    "history_reports": lambda history: history.reports(RUN),
    "history_incidents": lambda history: history.incidents(RUN),
    "history_gaps": lambda history: history.gaps(RUN),
    "history_records": lambda history: history.records(RUN),
}


@pytest.mark.parametrize("table", DAMAGED)
def test_a_damaged_row_is_left_out_alone_and_named_once(
    table: str, history: SqlHistory, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    _fill(history)
    column = TRACKER_TABLES.metadata.tables[table].c[table.removeprefix("history_").removesuffix("s")]
    keys = TRACKER_TABLES.metadata.tables[table].primary_key.columns
    with engine.begin() as connection:
        whole = connection.execute(select(*keys)).all()
        first = and_(*(key == value for key, value in zip(keys, whole[0], strict=True)))
        before = connection.scalar(select(column).where(first))
        torn = b"torn" if table == "history_records" else '{"schema_version": 1}'
        connection.execute(update(column.table).where(first).values({column: torn}))
    for _ in range(2):
        assert len(DAMAGED[table](history)) == len(whole) - 1
    assert [f"{table}, " in text_ for text_ in history.damaged()] == [True]
    assert [one.message.split(": ")[0] for one in caplog.records] == [
        f"a stored {column.name} is damaged and is left out"
    ]
    with engine.begin() as connection:
        connection.execute(update(column.table).where(first).values({column: before}))
    assert (len(DAMAGED[table](history)), history.damaged()) == (len(whole), ())


def _fill(history: SqlHistory) -> None:
    for record in RECORDS[:3]:
        history.append(record)
    for report in RECORDED.reports[:3]:
        history.append_reports(report)
    for step in (100, 200):
        loss = Incident(run_id=RUN, suite="s", benchmark="sums", opened_step=step, opened_digest="d", onset_step=100)
        history.append_incident(loss)
        history.append_gap(replace(RECORDED.gaps[0], step=step))


def test_documents_of_another_schema_version_are_refused_by_number() -> None:
    text_ = to_json(RECORDED.gaps[0])
    assert from_json(Gap, text_) == RECORDED.gaps[0]
    with pytest.raises(StoreError, match="schema version 7; this version supports 1"):
        from_json(Gap, text_.replace('"schema_version":1', '"schema_version":7'))
    with pytest.raises(StoreError, match="a stored report is damaged"):
        from_json(Report, text_)
    with pytest.raises(StoreError, match="damaged"):
        from_json(Gap, text_[:20])


def test_half_a_surrogate_pair_in_a_message_can_be_stored(history: SqlHistory) -> None:
    gap = replace(RECORDED.gaps[0], message="the model said \ud83d")
    assert history.append_gap(gap) is True
    assert history.gaps(RUN) == (gap,)


def test_a_loss_that_somebody_accepts_while_it_is_judged_stays_accepted(engine: Engine, tmp_path: Path) -> None:
    loss = Incident(run_id=RUN, suite="s", benchmark="sums", opened_step=200, opened_digest="of it", onset_step=100)
    accepted = replace(loss, closed_step=200, closed_by=Closing.ACCEPTED)
    history, other = SqlHistory(engine, tmp_path / "samples"), open_database(str(engine.url))
    history.append_incident(loss)
    judging = threading.Thread(target=history.append_incident, args=(replace(loss, forgotten=True),))
    with transaction(other) as connection:
        connection.execute(INCIDENTS.update().values(incident=to_json(accepted)))
        judging.start()
        judging.join(0.3)
    judging.join()
    assert history.incidents(RUN) == (accepted,)
    other.dispose()
