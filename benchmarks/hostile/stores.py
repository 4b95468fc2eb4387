"""Random behaviours of an MLflow server, against the real outbox and the real client.

    python -m benchmarks.hostile.stores --seed 1 --count 20

A real MLflow server runs behind a proxy that, call by call, is slow, endless, compressed, redirects, lies, dies or is
honest. An outbox sends through it for some passes; then the proxy is honest, and all must have arrived once. A server
that confirms what it dropped cannot be noticed by anybody and is not tried. Children with a memory limit do the work.
"""

import argparse
import http.client
import json
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eval_jobs.queue.database_sql import open_database
from tests.fakes import hostile_server as hostile
from tests.fakes.clock import FakeClock
from tests.fakes.hostile_server import Behaviour, HostileServer
from tests.mlflow_server import MlflowServer
from tests.mlflow_stores import EXPERIMENT, MlflowFiles
from tests.records import forgetting_run
from tests.shared_servers import stop_detached
from tracker.adapters.mlflow import address
from tracker.adapters.mlflow.client import connect
from tracker.adapters.mlflow.runs import TrackingSettings, run_key
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import ASIDE_S, BACKOFF, OutboxTracking
from tracker.app.tick import SENDING_S
from tracker.domain.tracking.batch import curve_batch, tracking_batch

PROCESSES = 4
MEMORY_BYTES = 4 << 30
ANSWER_S = 0.5
STALL_S = 60.0
PASSES = 3
HONEST = 0.6
"""Chance of a call to be answered honestly, so that others are reached at all."""
RECOVERY_FLUSHES = 20
RUN = forgetting_run(checkpoints=1, samples=2, trouble=False)

VALUES: tuple[Any, ...] = (None, [], {}, -1, 10**30, 1e308, "", "x" * 1000, "\ud800", True, [[[]]], "1970")

DEEP = hostile.answer(b"[" * 1_000_000)
MANY = hostile.answer(b'{"runs": [' + b"{}," * 3_000_000 + b"{}]}")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the behaviours of one seed led to. Counts but the first are 0 in a sound program."""

    behaviours: int
    stalls: int
    """Passes that waited longer than `STALL_S` for MLflow."""
    lost: int
    doubled: int
    astray: int
    """Requests that another server got."""
    tracebacks: int
    longest_pass_s: float
    first_bytes: int
    """Memory of a child before the first behaviour: its imports."""
    peak_bytes: int
    """With the hostile server, which runs in threads of the child."""


def measure(seed: int, count: int) -> Measured:
    """Play `count` behaviours in `PROCESSES` processes, and return what they led to."""
    os.environ["MALLOC_ARENA_MAX"] = "2"  # for the hundreds of threads of the hostile servers
    with tempfile.TemporaryDirectory(prefix="hostile-stores-") as name, _server(Path(name) / "server") as url:
        shares = [(seed, range(first, count, PROCESSES), url, Path(name)) for first in range(PROCESSES)]
        with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
            parts = pool.starmap(_measure_share, shares)
    return Measured(
        behaviours=sum(p.behaviours for p in parts),
        stalls=sum(p.stalls for p in parts),
        lost=sum(p.lost for p in parts),
        doubled=sum(p.doubled for p in parts),
        astray=sum(p.astray for p in parts),
        tracebacks=sum(p.tracebacks for p in parts),
        longest_pass_s=max(p.longest_pass_s for p in parts),
        first_bytes=max(p.first_bytes for p in parts),
        peak_bytes=max(p.peak_bytes for p in parts),
    )


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if something was lost, doubled, stalled or shown as a traceback."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    chosen = parser.parse_args(arguments)
    begun_s = time.monotonic()
    found = measure(chosen.seed, chosen.count)
    for key, value in asdict(found).items():
        sys.stdout.write(f"{key:<16} {value:>14,.10g}\n")
    sys.stdout.write(f"{'seconds':<16} {time.monotonic() - begun_s:>14.0f}\n")
    return int(any((found.stalls, found.lost, found.doubled, found.astray, found.tracebacks)))


# --- private: one behaviour after the other


class _Tracebacks(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += bool(record.exc_info) or "Traceback" in record.getMessage()


def _measure_share(seed: int, indexes: range, url: str, folder: Path) -> Measured:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = "1"
    address.CONNECT_TIMEOUT_S = ANSWER_S
    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    shown = _Tracebacks()
    logging.getLogger().addHandler(shown)
    total: Counter[str] = Counter()
    longest_s = 0.0
    for index in indexes:
        pass_s, counts = _play(random.Random(f"{seed}/{index}"), f"{seed}-{index}", url, folder)  # noqa: S311
        longest_s = max(longest_s, pass_s)
        total.update(counts)
        if any(counts.values()):
            sys.stdout.write(f"seed {seed}, behaviour {index}: {dict(counts)}\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    counted = {name: total[name] for name in ("stalls", "lost", "doubled", "astray")}
    memory = {"first_bytes": first, "peak_bytes": peak}
    return Measured(behaviours=len(indexes), **counted, tracebacks=shown.count, longest_pass_s=longest_s, **memory)


def _play(chance: random.Random, name: str, url: str, folder: Path) -> tuple[float, Counter[str]]:
    files, clock, stalls = MlflowFiles(folder / "server"), FakeClock(), 0
    longest_s = 0.0
    with HostileServer(hostile.answer(b"ok")) as other, HostileServer(hostile.silent) as server:
        server.behave = _Proxy(chance, url, f"{other.url}/api/2.0/mlflow/experiments/search")
        settings = TrackingSettings(uri=server.url, experiment=EXPERIMENT, output_dir=f"/out/{name}")
        open_client = partial(connect, answer_s=ANSWER_S)
        database = open_database(f"sqlite:///{folder}/{name}.db")
        with closing(OutboxTracking(database, MlflowStore(settings, open_client=open_client), clock)) as tracking:
            checkpoint = RUN.records[0].plan.checkpoint
            tracking.publish_curves(checkpoint, RUN.curves)
            if chance.random() < 0.3:  # a record takes the server a second
                tracking.publish(RUN.records[0], RUN.reports[0])
            for _ in range(PASSES):
                begun_s = time.monotonic()
                tracking.flush(SENDING_S)
                longest_s = max(longest_s, time.monotonic() - begun_s)
                tracking.flush(STALL_S * 2)
                clock.advance(BACKOFF.longest_s)
            stalls = longest_s > STALL_S
            server.behave = partial(_forward, url)
            left = _recover(tracking, clock)
    counts = _audit(files, run_key(settings, RUN.run_id), left)
    return longest_s, Counter({"stalls": int(stalls), **counts, "astray": len(other.asked)})


def _recover(tracking: OutboxTracking, clock: FakeClock) -> int:
    left = 0
    for _ in range(RECOVERY_FLUSHES):
        left = tracking.flush(STALL_S) + len(tracking.set_aside())
        if not left:
            return 0
        clock.advance(max(BACKOFF.longest_s, ASIDE_S))
    return left


def _audit(files: MlflowFiles, key: str, left: int) -> dict[str, int]:
    """Count the points of the run that are missing or there twice, and the runs and models that are there twice."""
    runs_of = (
        "SELECT r.run_uuid FROM runs r JOIN tags t ON t.run_uuid = r.run_uuid "
        "WHERE t.key = 'tracker.run_key' AND t.value = ? AND r.lifecycle_stage = 'active'"
    )
    models_of = "SELECT count(*) FROM logged_model_tags WHERE tag_key = 'tracker.checkpoint_key' AND tag_value LIKE ?"
    with closing(sqlite3.connect(f"file:{files.database}?mode=ro", uri=True, timeout=60)) as connection:
        runs = connection.execute(runs_of, (key,)).fetchall()
        (models,) = connection.execute(models_of, (f"{key}|%",)).fetchone()
        rows = connection.execute(f"SELECT key, step FROM metrics WHERE run_uuid IN ({runs_of})", (key,)).fetchall()  # noqa: S608
    found = Counter(rows)
    checkpoint = RUN.records[0].plan.checkpoint
    wanted = {(point.key, point.step) for point in curve_batch(checkpoint, RUN.curves).points}
    if models:
        wanted |= {(m.key, m.step) for m in tracking_batch(RUN.records[0], RUN.reports[0]).metrics}
    twice = sum(count - 1 for count in found.values())
    return {"lost": len(wanted - found.keys()) + left, "doubled": twice + max(0, len(runs) - 1) + max(0, models - 1)}


# --- private: the server


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    folder.mkdir()
    server = MlflowServer(folder)
    server.start()
    try:
        yield server.url
    finally:
        stop_detached(folder, signal.SIGTERM)


class _Proxy:
    """Answers each call by a behaviour that chance picks; dead for some calls after it died."""

    def __init__(self, chance: random.Random, url: str, elsewhere: str) -> None:
        self._chance, self._url = chance, url
        self._dead = 0
        self._kinds: tuple[Behaviour, ...] = (
            hostile.trickle,
            hostile.trickle_headers,
            hostile.endless,
            hostile.endless_chunk_size,
            hostile.compressed,
            hostile.zstd,
            hostile.silent,
            hostile.redirect(elsewhere, chance.choice(("301 Moved", "302 Found", "303 See Other", "307 Temporary"))),
            hostile.redirect("/" + "x" * chance.choice((1, 10_000))),
            hostile.answer(b"<html>Please sign in</html>"),
            hostile.answer(b"busy", status="503 Busy", headers=b"Retry-After: 100000\r\n"),
            hostile.answer(b'{"error_code": "INVALID_PARAMETER_VALUE"}', status="400 Bad Request"),
            hostile.answer(b'{"error_code": "%s"}' % (b"x" * 100_000), status="500 Oops"),
            hostile.answer(chance.randbytes(1000)),
            DEEP,
            MANY,
            self._die,
            self._do_and_say_nothing,
            self._do_and_cut,
            *[self._do_and_lie] * 6,
        )
        self._usual = chance.choice(self._kinds)
        """One kind is more frequent than the others: it is met at different calls."""

    def __call__(self, asked: bytes, connection: socket.socket) -> None:
        if self._dead:
            self._dead -= 1
        elif self._chance.random() < HONEST:
            _forward(self._url, asked, connection)
        else:
            self._chance.choice((self._usual, self._chance.choice(self._kinds)))(asked, connection)

    def _die(self, _: bytes, connection: socket.socket) -> None:
        connection.close()
        self._dead = self._chance.randrange(1, 5)

    def _do_and_say_nothing(self, asked: bytes, _: socket.socket) -> None:
        _asked_of(self._url, asked)

    def _do_and_cut(self, asked: bytes, connection: socket.socket) -> None:
        _, body = _asked_of(self._url, asked)
        connection.sendall(hostile.HEAD + b"Content-Length: 100000\r\n\r\n" + body[: len(body) // 2])

    def _do_and_lie(self, asked: bytes, connection: socket.socket) -> None:
        """Change one value of the true answer, at any depth."""
        status, body = _asked_of(self._url, asked)
        try:
            value = json.loads(body)
        except ValueError:
            value = body.decode(errors="replace")
        lie = json.dumps(_changed(value, self._chance)).encode()
        hostile.answer(lie, status=status, headers=b"Content-Type: application/json\r\n")(asked, connection)


def _forward(url: str, asked: bytes, connection: socket.socket) -> None:
    status, body = _asked_of(url, asked)
    hostile.answer(body, status=status, headers=b"Content-Type: application/json\r\n")(asked, connection)


def _asked_of(url: str, asked: bytes) -> tuple[str, bytes]:
    """Return status and body of the true answer."""
    head, _, body = asked.partition(b"\r\n\r\n")
    line, *headers = head.decode("latin-1").split("\r\n")
    method, path, _ = line.split(" ")
    kept = dict(header.split(": ", 1) for header in headers)
    for name in ("Host", "Connection", "Accept-Encoding"):
        kept.pop(name, None)
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as real:
        real.request(method, path, body, kept)
        answer = real.getresponse()
        return f"{answer.status} {answer.reason}", answer.read()


def _changed(value: Any, chance: random.Random) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice([*value])
        return {**value, key: _changed(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        at = chance.randrange(len(value))
        return [*value[:at], _changed(value[at], chance), *value[at + 1 :]]
    return chance.choice(VALUES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
