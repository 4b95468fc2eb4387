"""What is wrong with a database is one of our errors, which says whether waiting helps; then it works again."""

import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from sqlalchemy import Engine, event, text

from eval_jobs.errors import ConfigError, DiskFull, StoreError, StoreUnavailable, TrackerError
from eval_jobs.queue import migrate_sql
from eval_jobs.queue.database_sql import open_database, transaction
from eval_jobs.queue.patience_sql import PatientConnection
from eval_jobs.queue.sql_queue import SqlQueue
from tests.postgres import PostgresServer
from tests.shared_servers import alone_with, shared
from tracker.adapters.database.lock_sql import named_lock

NOBODY = 65534
T = TypeVar("T")
SPAWN = multiprocessing.get_context("spawn")


def open_queue(path: Path) -> Engine:
    engine = open_database(f"sqlite:///{path}")
    SqlQueue(engine)
    return engine


def impatient(path: Path) -> Engine:
    """Open a SQLite database whose lock is waited for no longer than a moment."""
    engine = open_database(f"sqlite:///{path}")
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "wait_s", 0.02))
    return engine


def error_of(action: Callable[[], object]) -> TrackerError:
    with pytest.raises(TrackerError) as raised:
        action()
    return raised.value


def write(engine: Engine, size: int = 1) -> None:
    with transaction(engine) as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS filler (data BLOB)"))
        connection.execute(text("INSERT INTO filler VALUES (zeroblob(:size))"), {"size": size})


def test_a_database_locked_by_another_process_is_a_retryable_error(tmp_path: Path) -> None:
    path = tmp_path / "tracker.db"
    open_queue(path).dispose()
    engine, other = impatient(path), sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    error = error_of(lambda: write(engine))
    assert isinstance(error, StoreUnavailable)
    assert error.retryable
    assert "locked by another process" in error.message
    other.execute("COMMIT")
    other.close()
    write(engine)
    engine.dispose()


def test_a_waiting_writer_asks_again_within_milliseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, waits = tmp_path / "tracker.db", []
    engine = open_queue(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 100:
            other.execute("COMMIT")

    monkeypatch.setattr("eval_jobs.queue.database_sql.time.sleep", wait)
    write(engine)
    assert len(waits) == 100
    assert max(waits) < 0.01
    other.close()
    engine.dispose()


def test_a_full_disk_is_reported_and_retried(tmp_path: Path) -> None:
    engine = open_queue(tmp_path / "tracker.db")
    write(engine)
    with transaction(engine) as connection:
        pages = connection.scalar(text("PRAGMA page_count"))
        connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    assert isinstance(error_of(lambda: write(engine, 100_000)), DiskFull)
    with transaction(engine) as connection:
        connection.execute(text("PRAGMA max_page_count = 1000000"))
    write(engine, 100_000)
    engine.dispose()


def write_with_small_files_only(path: Path, result: Connection) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    engine = open_queue(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    send_error_of(lambda: write(engine, 400_000), result)


def open_as_nobody(path: Path, result: Connection) -> None:
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    send_error_of(lambda: write(open_queue(path)), result)


def send_error_of(action: Callable[[], object], result: Connection) -> None:
    try:
        action()
    except TrackerError as error:
        result.send((error.code, error.message))
    else:
        result.send(None)


def in_another_process(target: Callable[[Path, Connection], None], path: Path) -> tuple[str, str] | None:
    hears, says = multiprocessing.Pipe(duplex=False)
    process = SPAWN.Process(target=target, args=(path, says))
    process.start()
    says.close()
    result: tuple[str, str] | None = hears.recv()
    process.join()
    return result


def test_a_file_that_may_not_grow_counts_as_a_full_disk(tmp_path: Path) -> None:
    result = in_another_process(write_with_small_files_only, tmp_path / "tracker.db")
    assert result is not None
    assert result[0] == "E-STORE-DISK"
    engine = open_queue(tmp_path / "tracker.db")
    write(engine, 400_000)
    engine.dispose()


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_folder_is_reported_by_name(*, exists: bool) -> None:
    # Not pytest's folder: its parents are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="tracker-read-only-"))
    try:
        path = folder / "tracker.db"
        if exists:
            open_queue(path).dispose()
        folder.chmod(0o555)
        result = in_another_process(open_as_nobody, path)
        assert result is not None
        assert result[0] == "E-STORE"
        assert str(path) in result[1]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_file_that_is_not_a_database_is_reported_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "tracker.db"
    path.write_bytes(b"not a database " * 1000)
    error = error_of(lambda: open_queue(path))
    assert type(error) is StoreError
    assert "is damaged" in error.message
    assert "move the file away" in error.hint
    assert path.read_bytes() == b"not a database " * 1000


def test_overwritten_database_pages_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "tracker.db"
    engine = open_queue(path)
    write(engine, 50_000)
    engine.dispose()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    error = error_of(lambda: open_queue(path))
    assert type(error) is StoreError
    assert "is damaged" in error.message


def test_a_missing_driver_is_reported_with_the_install_command() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from eval_jobs.queue.database_sql import open_database\n"
        "open_database('postgresql://me@host/runs', password='sesame')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ConfigError: E-CONFIG: the PostgreSQL driver is not installed" in result.stderr
    assert "pip install 'checkpoint-tracker[postgresql]'" in result.stderr
    assert "sesame" not in result.stderr


def test_a_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="invalid database URL"):
        open_database("postgresql://host:port/runs")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server for this test alone."""
    with alone_with(PostgresServer) as running:
        yield running


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Address of a new database, which asks for no password."""
    return server.new_database()


def test_an_unreachable_server_is_a_retryable_error_and_is_used_when_it_returns(
    server: PostgresServer, url: str
) -> None:
    engine = open_database(url, password="sesame")  # noqa: S106 - it asks for none
    queue = SqlQueue(engine)
    server.stop(signal.SIGQUIT)
    for _ in range(2):
        error = error_of(queue.state)
        assert isinstance(error, StoreUnavailable)
        assert error.retryable
        assert "sesame" not in str(error)
    server.start()
    assert queue.state().waiting == ()
    engine.dispose()


def test_a_frozen_server_is_detected_and_used_again_when_it_resumes(url: str) -> None:
    engine = open_database(f"{url}?connect_timeout=3")
    connections = connections_of(engine)
    queue, lock = patiently(lambda: SqlQueue(engine)), named_lock(engine, "lead")
    assert patiently(lock.take)

    def ask_in_the_middle() -> None:
        with transaction(engine) as connection, frozen(engine), impatience(connections):
            connection.execute(text("SELECT 1"))

    assert "no response for 0.5 s" in error_of(ask_in_the_middle).message
    with frozen(engine), impatience(connections):
        assert isinstance(error_of(queue.state), StoreUnavailable)  # no connection of before, and no new one
        assert not lock.is_held()
    assert patiently(queue.state).waiting == ()
    lock.release()
    engine.dispose()


def test_tables_are_changed_however_long_that_takes(postgres_url: str) -> None:
    engine, other = (open_database(postgres_url, silence_s=s) for s in (0.5, 30.0))
    with ThreadPoolExecutor(1) as pool:
        with transaction(other) as connection:
            connection.execute(text(f"SELECT pg_advisory_xact_lock({migrate_sql._POSTGRES_LOCK})"))
            changing = pool.submit(SqlQueue, engine)
            with pytest.raises(TimeoutError):
                changing.result(1.0)
        changing.result()
    assert SqlQueue(other).state().waiting == ()
    engine.dispose()
    other.dispose()


def patiently(ask: Callable[[], T]) -> T:
    """Ask again where a busy machine lets nobody in within three seconds."""
    for _ in range(20):
        with suppress(StoreUnavailable):
            return ask()
    return ask()


def connections_of(engine: Engine) -> list[PatientConnection]:
    """Return a list of all connections that the engine opens from now on."""
    connections: list[PatientConnection] = []
    event.listen(engine, "connect", lambda connection, _: connections.append(connection))
    return connections


@contextmanager
def impatience(connections: list[PatientConnection]) -> Iterator[None]:
    """Wait half a second for a server that says nothing, and before and after as long as a busy machine needs."""
    patience_s = {connection: connection.silence_s for connection in connections}
    for connection in connections:
        connection.silence_s = 0.5
    try:
        yield
    finally:
        for connection, silence_s in patience_s.items():
            connection.silence_s = silence_s


@contextmanager
def frozen(engine: Engine) -> Iterator[None]:
    """Stop every process of the server, as when the machine that it runs on is paused."""
    with transaction(engine) as connection:
        backend = connection.scalar(text("SELECT pg_backend_pid()"))
    main = psutil.Process(backend).parent()
    assert main is not None
    processes = [main, *main.children(recursive=True)]
    _each(processes, psutil.Process.suspend)
    try:
        yield
    finally:
        _each(processes, psutil.Process.resume)


def _each(processes: list[psutil.Process], action: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a server starts and ends processes of its own accord
            action(process)


def test_connections_that_were_cut_are_replaced_before_they_are_used(postgres_url: str) -> None:
    address, _, name = postgres_url.rpartition("/")
    engine, other = open_database(postgres_url), open_database(f"{address}/postgres")
    queue = SqlQueue(engine)
    assert queue.state().waiting == ()
    with transaction(other) as connection:
        cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"  # noqa: S608
        assert connection.scalars(text(cut)).all() == [True]
    assert queue.state().waiting == ()
    engine.dispose()
    other.dispose()


def test_a_missing_database_permission_is_an_error_without_retry() -> None:
    with shared(PostgresServer) as server:
        url, reader_name = server.new_database(), server.new_user("sesame")
    engine = open_database(url)
    reader = open_database(url.replace("postgres@", f"{reader_name}@"), password="sesame")  # noqa: S106
    SqlQueue(engine)
    error = error_of(lambda: SqlQueue(reader).state())
    assert type(error) is StoreError
    assert "permission denied" in error.message
    engine.dispose()
    reader.dispose()
