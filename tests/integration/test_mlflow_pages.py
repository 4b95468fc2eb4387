"""The MLflow server on a tracker's store: results sent over HTTP across a restart, and its pages in a real browser."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from eval_jobs.errors import PortTaken, TrackingUnreachable
from eval_jobs.queue.database_sql import open_database
from tests.browser import open_page, screenshot, wait_for_texts
from tests.fakes.clock import FakeClock
from tests.fakes.http_proxy import Fault, FaultyProxy
from tests.mlflow_server import MlflowServer
from tests.mlflow_stores import EXPERIMENT, MlflowFiles
from tests.records import forgetting_run
from tests.shared_servers import shared
from tracker.adapters.mlflow.runs import TrackingSettings
from tracker.adapters.mlflow.samples import write_pages
from tracker.adapters.mlflow.server import page_links, running_server, serve_ui
from tracker.adapters.mlflow.store import MlflowStore
from tracker.adapters.tracking.outbox_sql import BACKOFF, OutboxTracking
from tracker.domain.compare.sample_pages import sample_pages
from tracker.domain.records.tracking import Champion, ChampionBatch
from tracker.domain.tracking.batch import tracking_batch

RUN = forgetting_run(samples=80)
STEPS = [record.plan.checkpoint.step for record in RUN.records]

NO_ASSISTANT = {"mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true"}
"""MLflow opens a chat over a quarter of the page on the first visit."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A store and the server that runs on it."""

    files: MlflowFiles
    url: str


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Let the server take its time where other tests use the same cores."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
        yield


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store to which a whole run was sent over HTTP while the server went away and came back."""
    folder, clock = tmp_path_factory.mktemp("pages"), FakeClock()
    with shared(MlflowServer) as server, FaultyProxy(server.url) as proxy:
        store = MlflowStore(server.files.settings(uri=proxy.url))
        tracking = OutboxTracking(open_database(f"sqlite:///{folder}/tracker.db"), store, clock)
        _publish(tracking, 0, 5)
        assert tracking.flush() == 0
        proxy.always = Fault.REFUSED
        _publish(tracking, 5, 10)
        assert tracking.flush() == 10
        proxy.always = None
        assert tracking.flush() == 10  # it does not ask again at once
        clock.advance(BACKOFF.longest_s)
        assert tracking.flush() == 0
        tracking.close()
        yield Served(files=server.files, url=server.url)


@pytest.fixture
def files(served: Served) -> MlflowFiles:
    return served.files


@pytest.fixture
def url(served: Served) -> str:
    return served.url


def test_a_server_that_was_away_leaves_the_same_store_as_one_that_was_not(files: MlflowFiles, tmp_path: Path) -> None:
    undisturbed = MlflowFiles(tmp_path)
    with closing(_direct(undisturbed)) as tracking:
        _publish(tracking, 0, 10)
        assert tracking.flush() == 0
    assert files.dump(EXPERIMENT) == undisturbed.dump(EXPERIMENT)


@pytest.mark.chromium
def test_the_link_opens_charts_of_the_loss_and_every_benchmark_by_step(
    files: MlflowFiles, url: str, tmp_path: Path
) -> None:
    link = page_links(files.uri, url)[EXPERIMENT]
    # High enough for all charts: those below the window's end are not drawn.
    with open_page(link, local_storage=NO_ASSISTANT, height=2200) as page:
        wait_for_texts(page, "Training loss", "Latency", "Coverage")
        wait_for_texts(page, "train/loss", "bench/facts", "perf/ttft_ms_p50")
        wait_for_texts(page, *(f"{EXPERIMENT} ({key})" for key in ("bench/facts", "bench/sums", "train/loss")))
        page.locator(".js-plotly-plot .scatterlayer .trace").nth(3).wait_for()
        assert page.get_by_text("Step", exact=True).count() > 0
        assert page.get_by_text("Models", exact=True).count() > 0  # not "Agent versions"
        assert screenshot(page, tmp_path / "charts.png").stat().st_size > 20_000


@pytest.mark.chromium
def test_the_models_page_has_one_row_a_checkpoint_and_the_scores_first(files: MlflowFiles, url: str) -> None:
    with open_page(_page(files, url, "models"), local_storage=NO_ASSISTANT, width=2400) as page:
        wait_for_texts(page, *(f"step-{step}-{EXPERIMENT}" for step in STEPS))
        wait_for_texts(page, "bench/facts")
        columns = page.locator(".ag-header-cell-text").all_inner_texts()
        metrics = [name for name in columns if "/" in name]
        assert metrics[:3] == ["bench/facts", "bench/reversal", "bench/sums"]


@pytest.mark.chromium
def test_the_runs_page_shows_the_verdicts_in_words(files: MlflowFiles, url: str) -> None:
    run = files.runs(EXPERIMENT)[0].info.run_id
    with open_page(_page(files, url, f"runs/{run}"), local_storage=NO_ASSISTANT) as page:
        wait_for_texts(page, "Verdict at step 1000", "forgotten", "verdict/facts")


@pytest.mark.chromium
def test_the_note_of_a_run_leads_to_its_best_checkpoints(files: MlflowFiles, url: str, tmp_path: Path) -> None:
    run, checkpoint = files.runs(EXPERIMENT)[0].info.run_id, RUN.records[4].plan.checkpoint
    best = Champion(
        alias="champion", checkpoint=checkpoint, plan_id="p", reason="3 benchmarks: best block steps 400 to 600"
    )
    MlflowStore(files.settings(uri=url)).send(ChampionBatch(checkpoint=checkpoint, champions=(best,)))
    with open_page(_page(files, url, f"runs/{run}"), local_storage=NO_ASSISTANT) as page:
        wait_for_texts(page, "Curves", "All checkpoints", "Best checkpoints")
        screenshot(page, tmp_path / "run.png")
        link = page.get_by_role("link", name="Best checkpoints").get_attribute("href")
    with open_page(f"{url}/{link}", local_storage=NO_ASSISTANT) as page:
        wait_for_texts(page, "Best checkpoints of a training run", "champion", "Version 1")
        screenshot(page, tmp_path / "registry.png")


@pytest.mark.chromium
def test_two_checkpoints_are_shown_question_by_question(files: MlflowFiles, url: str, tmp_path: Path) -> None:
    changed = sample_pages(RUN.records[5], RUN.records[8], ("facts",)).pages[0]
    (link,) = write_pages(files.settings(uri=url), [changed])
    old, new = changed.before.rows[0], changed.after.rows[0]
    with open_page(f"{url}/{link}", local_storage=NO_ASSISTANT) as page:
        wait_for_texts(page, "Comparing", changed.after.name, changed.before.name)
        wait_for_texts(page, new.title, "Fail")
        row = page.locator("[role=row]").filter(has_text=new.title)
        # The newer one stands first.
        assert [text for text in row.first.inner_text().split("\n") if text in {"Pass", "Fail"}] == ["Fail", "Pass"]
        for text in (old.answer, new.answer, new.target):
            assert text is not None
            assert text in row.first.inner_text()
        assert page.locator("[role=row]").filter(has_text=re.compile("What colour")).count() > 5
        screenshot(page, tmp_path / "samples.png")
    run = files.runs(EXPERIMENT)[0].info.run_id
    with open_page(_page(files, url, f"runs/{run}"), local_storage=NO_ASSISTANT) as page:
        wait_for_texts(page, "Samples before and after")


def test_files_can_be_read_through_the_server(files: MlflowFiles, url: str) -> None:
    path = next(name for name in files.files(EXPERIMENT) if name.endswith("report.json"))
    answer = httpx.get(
        f"{url}/get-artifact", params={"path": path, "run_uuid": files.runs(EXPERIMENT)[0].info.run_id}, timeout=120
    )
    assert answer.json()["value"]["run_id"] == RUN.run_id


def test_a_port_that_is_taken_is_named(files: MlflowFiles) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)), running_server(files.uri, files.artifacts, port):
            pass


def test_for_a_server_that_runs_already_only_its_links_are_given(files: MlflowFiles, url: str, tmp_path: Path) -> None:
    links: list[str] = []
    assert serve_ui(url, tmp_path, 0, links.append) == 0
    (link,) = filter(_is_of(files), links)
    assert link.startswith(f"experiment {EXPERIMENT}: {url}/")


def test_ctrl_c_stops_the_server_and_all_its_processes(tmp_path: Path) -> None:
    files = MlflowFiles(tmp_path)
    program = (
        "import sys; from pathlib import Path; from tracker.adapters.mlflow.server import serve_ui\n"
        f"sys.exit(serve_ui({files.uri!r}, Path({str(files.artifacts)!r}), 0, lambda link: print(link, flush=True)))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        assert httpx.get(link, timeout=120).is_success
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(link)


def test_a_server_that_does_not_listen_is_given_up_within_seconds() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(TrackingUnreachable, match="cannot connect to") as caught:
        _send_one(address)
    assert "pending results are sent" in caught.value.hint


def test_a_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr("tracker.adapters.mlflow.address.VERSION_TIMEOUT_S", 1.0)
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        with pytest.raises(TrackingUnreachable, match=r"timed out|timeout"):
            _send_one(f"http://127.0.0.1:{hanging.getsockname()[1]}")


# --- private


def _publish(tracking: OutboxTracking, start: int, end: int) -> None:
    for record, report in list(zip(RUN.records, RUN.reports, strict=True))[start:end]:
        checkpoint = record.plan.checkpoint
        tracking.publish_curves(checkpoint, [p for p in RUN.curves if p.step <= checkpoint.step])
        tracking.publish(record, report)


def _direct(files: MlflowFiles) -> OutboxTracking:
    database = open_database(f"sqlite:///{files.folder}/tracker.db")
    return OutboxTracking(database, MlflowStore(files.settings()), FakeClock())


def _experiment(files: MlflowFiles) -> str:
    """Return the id of the experiment, which others share the server with."""
    return str(files.runs(EXPERIMENT)[0].info.experiment_id)


def _is_of(files: MlflowFiles) -> Callable[[str], bool]:
    """Return what knows the links of the experiment."""
    return lambda link: re.search(rf"/experiments/{_experiment(files)}\b", link) is not None


def _page(files: MlflowFiles, url: str, page: str) -> str:
    return f"{url}/#/experiments/{_experiment(files)}/{page}?workflowType=machine_learning"


def _send_one(address: str) -> None:
    settings = TrackingSettings(uri=address, experiment=EXPERIMENT)
    MlflowStore(settings).send(tracking_batch(RUN.records[0], RUN.reports[0]))
