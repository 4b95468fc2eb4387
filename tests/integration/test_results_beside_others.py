"""Reading results beside a watcher, without the right to write, and from another process."""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import text

from eval_jobs.errors import TrackerError
from eval_jobs.queue.database_sql import open_database, transaction
from tests.postgres import PostgresServer
from tests.records import forgetting_run
from tests.shared_servers import shared
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api.results import open as open_results

RECORDED = forgetting_run(checkpoints=6, samples=20)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    with shared(PostgresServer) as server:
        yield server.new_database()


def in_child(act: Callable[[], object]) -> str:
    """Return what `act` gives in a fork of this process, as a text; or its error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(act())
        except TrackerError as error:
            answer = str(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    return os.read(read, 4000).decode()


def test_a_forked_process_opens_the_project_itself(tmp_path: Path) -> None:
    SqlHistory(open_database(f"sqlite:///{tmp_path}/tracker.db"), tmp_path / "samples").append(RECORDED.records[0])
    project = open_results(tmp_path)
    samples = project.samples()
    for act in (project.scores, samples.to_pandas):
        assert "opened in another process (hint: call tracker.open again" in in_child(act)


def as_nobody(act: Callable[[], object]) -> str:
    """Return what `act` gives to a user without any right to write; root is another one for it."""

    def without_rights() -> object:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return act()

    return in_child(without_rights)


NOBODY = 65534


def test_who_may_not_write_reads_beside_a_watcher_and_is_told_what_a_resting_database_needs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        state.chmod(0o755)
        engine = open_database(f"sqlite:///{state}/tracker.db")
        history = SqlHistory(engine, state / "samples")
        history.append(RECORDED.records[0])
        before = {path.name for path in state.iterdir()}
        state.chmod(0o555)
        assert as_nobody(lambda: len(open_results(state).scores())) == "3"
        assert {path.name for path in state.iterdir()} == before
        engine.dispose()
        answer = as_nobody(lambda: len(open_results(state).scores()))
        assert "cannot read the database" in answer
        assert "read it while `tracker watch` runs, as a user who may write in" in answer


def test_a_role_that_may_only_select_reads_and_writes_nothing(postgres_url: str, tmp_path: Path) -> None:
    engine = open_database(postgres_url)
    history = SqlHistory(engine, tmp_path / "samples")
    history.append(RECORDED.records[0])
    with transaction(engine) as connection:
        connection.execute(text("DROP ROLE IF EXISTS only_reads"))
        connection.execute(text("CREATE ROLE only_reads LOGIN"))
        connection.execute(text("GRANT SELECT ON ALL TABLES IN SCHEMA public TO only_reads"))
    project = open_results(postgres_url.replace("postgres@", "only_reads@"))
    assert len(project.scores()) == 3
    assert project.checkpoints()["step"].tolist() == [100]
    with transaction(engine) as connection:
        connection.execute(text("DROP OWNED BY only_reads"))
        connection.execute(text("DROP ROLE only_reads"))
    engine.dispose()


def test_frames_are_whole_while_a_watcher_writes(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/tracker.db")
    history = SqlHistory(engine, tmp_path / "samples")
    history.append(RECORDED.records[0])
    project = open_results(tmp_path)

    def write() -> None:
        for record, report in 5 * list(zip(RECORDED.records, RECORDED.reports, strict=True)):
            history.append(record)
            history.append_reports(report)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        frames: list[tuple[pd.DataFrame, pd.DataFrame]] = []
        while not writing.done() or len(frames) < 20:
            frames.append((project.scores(), project.verdicts()))
        writing.result()
    for found in frames:
        for frame in found:
            assert set(frame.groupby("step").size()) <= {3}
    assert len(frames[-1][0]) == 3 * len(RECORDED.records)
    engine.dispose()
