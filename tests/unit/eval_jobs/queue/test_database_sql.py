"""Processes that start at once all get the new database."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from eval_jobs.queue.database_sql import open_database

TOGETHER, FILES = 8, 80


def test_many_that_create_the_same_sqlite_file_at_once_are_all_let_in(tmp_path: Path) -> None:
    starting = threading.Barrier(TOGETHER)

    def connect(path: Path) -> None:
        engine = open_database(f"sqlite:///{path}")
        starting.wait()
        try:
            engine.connect().close()
        finally:
            engine.dispose()

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that they collide
    try:
        with ThreadPoolExecutor(TOGETHER) as pool:
            for number in range(FILES):
                list(pool.map(connect, [tmp_path / f"{number}.db"] * TOGETHER))
    finally:
        sys.setswitchinterval(interval_s)
