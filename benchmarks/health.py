"""How fast logs of trainings are read, and what the agent costs beside a training.

    python -m benchmarks.health [--logs FOLDER]

Lines in a second of CPU time over real logs (or made-up ones), beside a bare loop over the same lines; the memory of an
agent that has read a million lines, and its CPU time while a log grows by 100 lines a second; the time to queue ten
points of a run that has a million.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

import psutil
from rich.console import Console
from sqlalchemy import select

from eval_jobs.queue.address import QUEUE_URL_VARIABLE
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.migrate_sql import bring_up_to_date
from tests.fakes.tracking import FakeSink
from tests.tables import HISTORIES
from tracker.adapters.database.health_tables import HEALTH_STREAMS
from tracker.adapters.database.tables import POINTS
from tracker.adapters.health.documents import STREAM
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.app.health.settings import AgentSettings
from tracker.config.health import load_rules
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.records.types import CurvePoint
from tracker.wiring.agent import SETTINGS_VARIABLE, settings_text

SHARED = Path(__file__).parents[2] / "shared" / "data" / "train_logs"
LINES, ROUNDS = 200_000, 3
MILLION = 1_000_000
PER_S, FOR_S, SETTLES_S = 100, 60, 5
PATIENCE_S = 300.0


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, default=SHARED, help="folder with logs, searched with its sub-folders")
    lines = mixed(parser.parse_args().logs)
    console = Console()
    bare_s, read_s = min(bare(lines) for _ in range(ROUNDS)), min(read(lines) for _ in range(ROUNDS))
    console.print(f"{len(lines) / read_s:,.0f} lines/s, {read_s / bare_s:.1f} times a bare loop")
    with tempfile.TemporaryDirectory(prefix="bench-health-") as name:
        console.print(queueing(Path(name)))
        console.print(memory(Path(name) / "mixed", islice(cycle(lines), MILLION)), "of all these logs")
        console.print(*agent_costs(Path(name) / "one"), sep="\n")


def mixed(folder: Path) -> list[str]:
    """Return lines of all logs, each as often as it takes, or of one made-up log."""
    found: list[str] = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "SOURCE.md":
            found += path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = found or list(one_training(10_000))
    return (found * (LINES // len(found) + 1))[:LINES]


def one_training(steps: int) -> Iterator[str]:
    """Yield the lines of one training without trouble."""
    for step in range(steps):
        yield f"step {step} | loss: {3 - step / 1e6:.4f} | lr: 1e-4 | tok/s: 12,345"


def bare(lines: list[str]) -> float:
    """Return the CPU time in seconds of a loop that splits each line of a file into words."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.seek(0)
        begun_s, words = time.process_time(), 0
        for line in file:
            words += len(line.lower().split())
        return time.process_time() - begun_s


def read(lines: list[str]) -> float:
    """Return the CPU time in seconds of reading them as a log."""
    log, stream, state = RunLog(rules=load_rules().lines, state=RunState()), Stream(name=""), StreamState()
    begun_s = time.process_time()
    for number, text in enumerate(lines, start=1):
        log.take(RawLine(number=number, text=text), stream, state)
        if number % 10_000 == 0:
            log.forget_taken()
    return time.process_time() - begun_s


def queueing(folder: Path) -> str:
    """Return how long ten points of a run with a million take to queue."""
    engine = open_database(f"sqlite:///{folder}/points.db")
    tracking = OutboxTracking(engine, FakeSink())
    with engine.begin() as connection:
        rows = [{"run_id": "run", "key": f"train/{n % 10}", "step": n // 10, "value": 1.0} for n in range(MILLION)]
        connection.execute(POINTS.insert(), rows)
    times_ms = []
    for step in range(MILLION, MILLION + 20):
        points = [CurvePoint(key=f"train/{n}", step=step, value=2.0) for n in range(10)]
        begun_s = time.perf_counter()
        tracking.publish_live_curves("run", points, datetime.now(UTC))
        times_ms.append(1000 * (time.perf_counter() - begun_s))
    engine.dispose()
    return f"ten points of a run with a million are queued in {sorted(times_ms)[10]:.1f} ms"


def memory(folder: Path, lines: Iterable[str]) -> str:
    """Return what a real agent takes that has read these lines."""
    with agent(folder) as process:
        _write(folder, lines)
        return f"the agent takes {process.memory_info().rss / 2**20:.0f} MB after a million lines"


def agent_costs(folder: Path) -> Iterator[str]:
    """Yield what a real agent takes that has read a million lines of one training, and then a log that grows."""
    with agent(folder) as process:
        log = _write(folder, one_training(MILLION))
        yield f"and {process.memory_info().rss / 2**20:.0f} MB after those of one training"
        threading.Event().wait(SETTLES_S)
        before_s = sum(process.cpu_times()[:2])
        _grow(log)
        yield f"and {100 * (sum(process.cpu_times()[:2]) - before_s) / FOR_S:.1f} % of a core at {PER_S} lines a second"


@contextmanager
def agent(folder: Path) -> Iterator[psutil.Process]:
    """Run an agent while the context is open, which follows the logs in `folder`/out."""
    out = folder / "out"
    out.mkdir(parents=True)
    url = f"sqlite:///{folder}/agent.db"
    engine = open_database(url)
    for history in HISTORIES:
        bring_up_to_date(engine, history)
    engine.dispose()
    settings = AgentSettings(run="run", output_dir=str(out), patterns=(), rules=load_rules().lines)
    variables = {QUEUE_URL_VARIABLE: url, SETTINGS_VARIABLE: settings_text(settings)}
    command = [sys.executable, "-P", "-m", "tracker.wiring.agent", "--work-dir", str(folder)]
    with subprocess.Popen(command, env=os.environ | variables) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def _write(folder: Path, lines: Iterable[str]) -> Path:
    """Write a log, and return it when all of it is read."""
    log = folder / "out" / "train.log"
    with log.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    _wait_until_read(folder, log)
    return log


def _wait_until_read(folder: Path, log: Path) -> None:
    engine = open_database(f"sqlite:///{folder}/agent.db")
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        with engine.connect() as connection:  # not the store: who reads that takes over from the agent
            documents = connection.execute(select(HEALTH_STREAMS.c.cursor)).scalars().all()
        if any(STREAM.from_json(document)[0].offset >= log.stat().st_size for document in documents):
            break
        threading.Event().wait(0.5)
    else:
        raise TimeoutError(f"the agent has not read {log} within {PATIENCE_S:.0f} s")
    engine.dispose()


def _grow(log: Path) -> None:
    with log.open("a", encoding="utf-8", buffering=1) as file:
        for second in range(FOR_S):
            for number in range(PER_S):
                file.write(f"step {MILLION + second * PER_S + number} | loss: 2.5 | lr: 1e-4\n")
            threading.Event().wait(1.0)


if __name__ == "__main__":
    main()
