"""A real MLflow server behind a network that fails: when it works again, the store is that of an undisturbed run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.queue.database_sql import open_database
from tests.deep import sized
from tests.fakes.clock import FakeClock
from tests.fakes.http_proxy import Fault, FaultyProxy
from tests.mlflow_server import MlflowServer
from tests.mlflow_stores import MlflowFiles
from tests.records import forgetting_run
from tests.shared_servers import shared
from tracker.adapters.mlflow.runs import run_key
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import BACKOFF, OutboxTracking

RUN = forgetting_run(checkpoints=3, samples=4, trouble=False)
EXPERIMENTS = (f"round-{number}" for number in count())
MAX_FLUSHES = 20


@dataclass(frozen=True, kw_only=True)
class Served:
    """A store, the server that runs on it, and the bad network before it."""

    files: MlflowFiles
    proxy: FaultyProxy


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Let the server take its time where other tests use the same cores."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
        yield


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with shared(MlflowServer) as server, FaultyProxy(server.url) as proxy:
        yield Served(files=server.files, proxy=proxy)


@pytest.fixture(autouse=True)
def proxy(served: Served) -> Iterator[FaultyProxy]:
    served.proxy.restart_count()
    yield served.proxy
    served.proxy.restart_count()


@pytest.fixture
def tracking(served: Served, tmp_path: Path) -> Iterator[Outbox]:
    with closing(Outbox(served, tmp_path / "tracker.db")) as opened:
        yield opened


class Outbox:
    """An outbox that sends into an experiment of its own."""

    def __init__(self, served: Served, database: Path) -> None:
        self.experiment = next(EXPERIMENTS)
        self.clock = FakeClock()
        self._settings = served.files.settings(
            uri=served.proxy.url, experiment=self.experiment, output_dir=self.experiment
        )
        self._files = served.files
        self._database = f"sqlite:///{database}"
        self.tracking = self._opened()

    def publish(self, *indexes: int) -> None:
        for index in indexes:
            checkpoint = RUN.records[index].plan.checkpoint
            self.tracking.publish_curves(checkpoint, [p for p in RUN.curves if p.step <= checkpoint.step])
            self.tracking.publish(RUN.records[index], RUN.reports[index])

    def send_all(self) -> None:
        """Flush until nothing waits, each time after the longest back-off."""
        for _ in range(MAX_FLUSHES):
            if not self.tracking.flush():
                return
            self.clock.advance(BACKOFF.longest_s)
        raise AssertionError("the outbox is never empty")

    def restart(self) -> None:
        self.tracking.close()
        self.tracking = self._opened()

    def _opened(self) -> OutboxTracking:
        return OutboxTracking(open_database(self._database), MlflowStore(self._settings), self.clock)

    def close(self) -> None:
        self.tracking.close()

    def dump(self) -> list[str]:
        """Return what the store holds, without what names this experiment."""
        key = run_key(self._settings, RUN.run_id)
        parts = self._files.dump(self.experiment)
        lines = [f"{name}: {value}" for name, values in parts.items() for value in _listed(values)]
        return [line.replace(key, "KEY").replace(self.experiment, "EXPERIMENT") for line in lines]


@pytest.fixture(scope="module")
def undisturbed(served: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """What the store holds after the first n checkpoints, by n."""
    with closing(Outbox(served, tmp_path_factory.mktemp("undisturbed") / "tracker.db")) as outbox:
        dumps = {}
        for index in range(3):
            outbox.publish(index)
            assert outbox.tracking.flush() == 0
            dumps[index + 1] = outbox.dump()
    return dumps


def test_a_server_that_is_away_for_the_whole_run_gets_all_of_it_afterwards(
    tracking: Outbox, proxy: FaultyProxy, undisturbed: dict[int, list[str]]
) -> None:
    proxy.always = Fault.REFUSED
    for index in range(3):
        tracking.publish(index)
        assert tracking.tracking.flush() > 0
        tracking.clock.advance(BACKOFF.longest_s)
        tracking.restart()
    proxy.always = None
    tracking.send_all()
    assert tracking.dump() == undisturbed[3]


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.BUSY, Fault.PAGE, Fault.ANSWER_500, Fault.ANSWER_CUT])
def test_a_server_that_fails_now_and_then_ends_with_the_same_store(
    tracking: Outbox, proxy: FaultyProxy, undisturbed: dict[int, list[str]], fault: Fault
) -> None:
    proxy.faults.update(dict.fromkeys((0, 1, 5, 12, 20, 33, 48, 66, 70, 90, 120), fault))
    for index in range(3):
        tracking.publish(index)
        tracking.send_all()
    assert len(proxy.requests) > 60
    assert tracking.dump() == undisturbed[3]


def test_an_answer_that_is_lost_after_any_write_doubles_nothing(
    served: Served, proxy: FaultyProxy, undisturbed: dict[int, list[str]], tmp_path: Path
) -> None:
    for number in _writes(served, proxy, tmp_path):
        with closing(Outbox(served, tmp_path / f"{number}.db")) as outbox:
            proxy.restart_count()
            proxy.faults[number] = Fault.ANSWER_LOST
            outbox.publish(0)
            assert outbox.tracking.flush() > 0
            asked = proxy.requests[number]
            outbox.clock.advance(BACKOFF.longest_s)
            outbox.send_all()
            assert outbox.dump() == undisturbed[1], f"after request {number}: {asked}"


def test_a_write_that_a_slow_server_completes_after_its_timeout_duplicates_nothing(
    served: Served, proxy: FaultyProxy, undisturbed: dict[int, list[str]], tmp_path: Path
) -> None:
    for number in _writes(served, proxy, tmp_path):
        with closing(Outbox(served, tmp_path / f"{number}.db")) as outbox:
            proxy.restart_count()
            proxy.faults[number] = Fault.LATE
            outbox.publish(0)
            assert outbox.tracking.flush() > 0
            asked = proxy.requests[number]
            outbox.clock.advance(BACKOFF.longest_s)
            assert outbox.tracking.flush() == 0
            assert proxy.deliver_late() == 1
            outbox.publish(1)  # whatever was made twice is tidied up with the next item
            outbox.send_all()
            assert outbox.dump() == undisturbed[2], f"after request {number}: {asked}"


def test_a_server_without_a_response_times_out_and_is_retried(
    tracking: Outbox, proxy: FaultyProxy, undisturbed: dict[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.faults[1] = Fault.SILENT  # the first one only asks for the version
    tracking.publish(0)
    with monkeypatch.context() as patched:
        patched.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        assert tracking.tracking.flush() > 0
    tracking.send_all()
    assert tracking.dump() == undisturbed[1]


# --- private


def _writes(served: Served, proxy: FaultyProxy, folder: Path) -> list[int]:
    """Return the number of the first request of each kind that writes, or of every second kind."""
    with closing(Outbox(served, folder / "all.db")) as outbox:
        outbox.publish(0)
        outbox.send_all()
    kinds: dict[str, int] = {}
    for number, (method, path) in enumerate(proxy.requests):
        if method != "GET" and "search" not in path:
            kinds.setdefault(re.sub(r"[0-9a-f-]{32,}|m-\w+", "ID", f"{method} {path}"), number)
    assert {"POST /api/2.0/mlflow/runs/create", "POST /api/2.0/mlflow/logged-models"} <= kinds.keys()
    return list(kinds.values())[:: sized(2, 1)]


def _listed(values: Any) -> list[Any]:
    return sorted(values.items()) if isinstance(values, dict) else values
