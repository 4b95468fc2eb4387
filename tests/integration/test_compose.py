"""docker-compose.yml as it is, on namespaces in the place of containers: real PostgreSQL, MLflow, S3 server and vLLM.

The commands, environments, secrets, volumes, users, read-only roots, health checks and tracker.toml are those of the
files that are shipped; nothing in them is replaced.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.serve.process.control import KEY_VARIABLE
from tests.containers import Containers, stopped
from tests.swap_models import write_quantised
from tests.tiny_model import VOCABULARY, write_checkpoint
from tests.trainer import trainer_state

OWNER = 12345
"""Of the runs: who trains."""

ASKING_S = 2.0
"""Between two questions to MLflow: one takes most of a second of a core, which whoever is waited for needs."""

KEYS = ("bench/questions", "perf/ttft_ms_p50", "train/loss")

MLFLOW = """
import json, sys, httpx
password = open("/run/secrets/mlflow_tracker_password").read()
client = httpx.Client(base_url="http://mlflow:5000/api/2.0/mlflow/", auth=("tracker", password), timeout=60)
def get(route, **query): return client.get(route, params=query).raise_for_status().json()
all_of = {"filter": "name = 'my-run'", "max_results": 10}
found = client.post("experiments/search", json=all_of).raise_for_status().json().get("experiments", [])
ids = {"experiment_ids": [experiment["experiment_id"] for experiment in found]}
runs = client.post("runs/search", json=ids).raise_for_status().json().get("runs", []) if found else []
points, files = [], []
for run in (run["info"]["run_id"] for run in runs):
    for key in sys.argv[1:]:
        history = get("metrics/get-history", run_id=run, metric_key=key).get("metrics", [])
        points += [f"{point['key']} {point['step']}" for point in history]
    folders = [""]
    for folder in folders:
        for entry in get("artifacts/list", run_id=run, path=folder).get("files", []):
            (folders if entry["is_dir"] else files).append(entry["path"])
print(json.dumps({"points": points, "files": sorted(files)}))
"""

RIGHTS = """
import httpx
def ask(user, secret, route, **body):
    auth = None if user is None else (user, open(f"/run/secrets/{secret}").read())
    return httpx.post(f"http://mlflow:5000/api/{route}", json=body, auth=auth, timeout=60)
admin, own = ("admin", "mlflow_admin_password"), ("tracker", "mlflow_tracker_password")
others = ask(*admin, "2.0/mlflow/experiments/create", name="of-others").json()["experiment_id"]
run = {"route": "2.0/mlflow/runs/create", "experiment_id": others}
print("nobody", ask(None, None, **run).status_code)
print("makes users", ask(*own, "2.0/mlflow/users/create", username="x", password="a-long-password").status_code)
print("writes elsewhere", ask(*own, **run).status_code)
grant = {"username": "tracker", "resource_type": "experiment", "resource_id": others, "permission": "EDIT"}
ask(*admin, "3.0/mlflow/users/permissions/grant", **grant).raise_for_status()
print("writes where it may", ask(*own, **run).status_code)
"""

BUCKET = """
import boto3
client = boto3.client("s3", endpoint_url="http://objects:8333", aws_access_key_id="a", aws_secret_access_key="b")
print(*(entry["Key"] for entry in client.list_objects_v2(Bucket="mlflow")["Contents"]), sep="\\n")
"""

WITHOUT_US = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from eval_jobs.errors import CanaryFailed, SwapRefused
from eval_jobs.serve.process import control
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.swap import swap
from eval_jobs.serve.weights.fingerprint import fingerprint_of
from eval_jobs.types import Checkpoint, CheckpointFormat
control.KEY, port, model, started_on, whole, vocab_size = sys.argv[1:]
def answers():
    try: return ask_canaries(int(port), model, vocab_size=int(vocab_size))
    except CanaryFailed: return None
def reload(folder):
    arguments = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
    steps = (("/pause?mode=wait", None), ("/collective_rpc", arguments), ("/resume", None))
    return all([control.post_to_engine(int(port), path, body, timeout_s=60).is_ok for path, body in steps])
cold = answers()
checkpoint = Checkpoint(run_id="r", step=1, uri=whole, source_uri=whole, format=CheckpointFormat.FULL, digest="0" * 64,
                        ready_at=datetime.now(UTC))
try: swap(int(port), checkpoint, fingerprint_of(Path(started_on)), timeout_s=60)
except SwapRefused as no: print("refused:", no.message)
print("answers as before:", cold is not None and answers() == cold)
for folder in (started_on, whole):
    print("loaded by vLLM alone:", reload(folder), "answers as a cold start:", answers() == cold)
"""

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def train(runs: Path, step: int) -> None:
    """Write a checkpoint in int8 as the user that trains; weights can be read by their owner only."""
    (runs / "my-run").mkdir(exist_ok=True)
    folder = write_quantised(runs / "my-run" / f".checkpoint-{step}", seed=step)
    (folder / "trainer_state.json").write_text(json.dumps(trainer_state(step)))
    (folder / "model.safetensors").chmod(0o600)
    for path in (runs, runs / "my-run", folder, *folder.iterdir()):
        os.chown(path, OWNER, OWNER)
    folder.rename(folder.with_name(f"checkpoint-{step}"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, runs: Path) -> Iterator[Containers]:
    """All services, started while PostgreSQL is not there yet, with one checkpoint that went through."""
    train(runs, 100)
    with Containers(tmp_path_factory.mktemp("site"), runs=runs) as started:
        _keep_what_vllm_found_out(started)
        started.start("watch")  # Compose starts what was running in any order after the machine has started
        started.start("worker")
        started.until(lambda: all("E-STORE-AWAY" in started.said(name) for name in ("watch", "worker")), "both say it")
        started.up("mlflow")
        assert started.stop("watch") == 4
        started.start("watch")  # by its restart policy, again and again; the worker has waited
        started.until(lambda: started.is_healthy("mlflow"), "MLflow is healthy", every_s=ASKING_S)
        assert started.once("mlflow-user") == "the user tracker is made\n"
        started.until(lambda: "evaluated step 100" in started.said("watch"), "the first checkpoint is judged")
        yield started


def in_mlflow(site: Containers) -> dict[str, list[str]]:
    """Return what MLflow has of the run: `KEY STEP` of every point of three metrics, and its files."""
    found: dict[str, list[str]] = json.loads(site.run("watch", "python", "-c", MLFLOW, *KEYS))
    return found


def test_a_checkpoint_goes_from_the_trainers_folder_to_mlflow_and_its_files_to_the_bucket(
    site: Containers, runs: Path
) -> None:
    site.until(lambda: len(in_mlflow(site)["files"]) == 2, "MLflow has it", every_s=ASKING_S)
    found = in_mlflow(site)
    assert "bench/questions 100" in found["points"]
    assert "perf/ttft_ms_p50 100" in found["points"]
    names = [path.rpartition("/")[2] for path in found["files"]]
    assert names == ["questions.parquet", "report.json"]
    kept = site.run("mlflow", "python", "-c", BUCKET).split()
    assert sorted(key.rpartition("/")[2] for key in kept) == names
    assert {path.name for path in (runs / "my-run").iterdir()} == {"checkpoint-100"}
    history = site.run("watch", "tracker", "history", "--config", "/project/tracker.toml")
    assert "questions" in history


def test_what_started_before_postgresql_says_so_and_works_when_it_is_there(site: Containers) -> None:
    before, after = " ".join(site.said("worker").split()).split("is ready", 1)
    assert "E-STORE-AWAY" in before  # every five seconds
    assert "retrying in" in before
    assert "finished" in after
    said = site.said("watch")
    assert "WARNING: database: cannot use the database" in said
    assert "error E-STORE-AWAY" in said
    assert said.index("watching /runs/my-run") < said.index("evaluated step 100")


def test_no_service_runs_as_root_or_shows_a_secret(site: Containers) -> None:
    secrets = {path.read_text() for path in (site.folder / "docker/secrets").iterdir() if path.name != "s3_identities"}
    assert len(secrets) == 7
    ours = [process for service in site.services for process in site.processes(service)]
    assert len(ours) > 8
    assert {user for p in ours for user in p.uids()} == {OWNER, 999, 1000}
    assert not [word for p in ours for word in p.cmdline() if any(secret in word for secret in secrets)]
    told = [path for path in (*site.folder.glob("*.log"), *_files(site.folder / "volumes")) if _holds(path, secrets)]
    assert not told


def test_watcher_and_worker_say_that_they_go_on_and_a_stopped_one_does_not(site: Containers) -> None:
    assert site.is_healthy("watch")
    assert site.is_healthy("worker")


def test_weights_that_are_not_quantised_are_refused_and_vllm_alone_spoils_those_in_int8(
    site: Containers, runs: Path
) -> None:
    """Why int8 is served by a start of its own; nothing mends the engine after it."""
    whole = write_checkpoint(runs / "whole", seed=1)
    for path in (whole, *whole.iterdir()):
        os.chown(path, OWNER, OWNER)
    (server,) = [one for one in site.processes("worker") if "vllm.entrypoints.openai.api_server" in one.cmdline()]
    command = server.cmdline()
    port, model, started_on = (command[command.index(f"--{n}") + 1] for n in ("port", "served-model-name", "model"))
    arguments = (server.environ()[KEY_VARIABLE], port, model, started_on, "/runs/whole", str(len(VOCABULARY)))
    refused, *said = site.run("worker", "/opt/tracker/bin/python", "-c", WITHOUT_US, *arguments).splitlines()
    assert re.search(r"refused: .*the tensor .*_proj\.weight is F32 .*, was I8", refused)
    has_amx = "amx_int8" in Path("/proc/cpuinfo").read_text()  # it runs int8 with other kernels
    assert said == [
        "answers as before: True",
        f"loaded by vLLM alone: True answers as a cold start: {has_amx}",
        "loaded by vLLM alone: True answers as a cold start: False",
    ]


def test_a_worker_that_docker_stops_leaves_no_engine_behind(site: Containers) -> None:
    assert [process for process in site.processes("worker") if "VLLM" in " ".join(process.cmdline())]
    site.ask_to_stop("worker")
    site.until(lambda: not site.processes("worker"), "it has ended with all that it started")
    assert site.stop("worker") in {0, 130}
    assert not site.is_healthy("worker")


def test_mlflow_asks_for_a_password_and_the_tracker_writes_only_where_it_may(site: Containers) -> None:
    assert site.run("mlflow-user", "python", "-c", RIGHTS).splitlines() == [
        "nobody 401",
        "makes users 403",
        "writes elsewhere 403",
        "writes where it may 200",
    ]


def test_while_a_backup_is_put_back_and_mlflow_brought_up_to_date_what_is_for_it_waits(
    site: Containers, runs: Path
) -> None:
    backup = site.run("postgres", "pg_dumpall", "--clean", "--if-exists", "--username=postgres")
    assert all(f"DATABASE {name}" in backup for name in ("runs", "mlflow", "mlflow_auth"))
    before = len(site.said("watch"))
    site.stop("mlflow")
    train(runs, 200)
    site.until(lambda: "E-STORE-MLFLOW" in site.said("watch")[before:], "it is said that MLflow is away")
    with stopped(site, "watch"):
        site.run("postgres", "psql", "--quiet", "--username=postgres", "--dbname=postgres", said=backup)
        site.run("mlflow", "python", "/opt/docker/mlflow_server.py", "upgrade")
        site.up("mlflow")
        site.until(lambda: site.is_healthy("mlflow"), "MLflow is healthy again", every_s=ASKING_S)
    site.until(lambda: "train/loss 200" in in_mlflow(site)["points"], "it is sent", every_s=ASKING_S)
    points = in_mlflow(site)["points"]
    assert len(points) == len(set(points))
    assert "found step 200" in site.said("watch")


def test_a_password_that_mlflow_does_not_know_is_said_and_results_wait_until_it_does(
    site: Containers, runs: Path
) -> None:
    before = len(site.said("watch"))
    with stopped(site, "watch"):
        (site.folder / "docker/secrets/mlflow_tracker_password").write_text("another-password")
        train(runs, 300)
    for expected in ("access denied", "found step 300"):  # in either order
        site.until(lambda text=expected: text in site.said("watch")[before:], f"{expected} is said")
    said = " ".join(site.said("watch")[before:].split())
    assert "tracking.password_file" in said
    assert "another-password" not in said
    assert site.once("mlflow-user") == "the user tracker is there and has the password of its file\n"
    site.until(lambda: "train/loss 300" in in_mlflow(site)["points"], "it is sent", every_s=ASKING_S)


def test_a_wrong_password_of_the_administrator_is_said_when_the_user_is_to_be_made(site: Containers) -> None:
    secret = site.folder / "docker/secrets/mlflow_admin_password"
    secret.write_text("not-the-password")
    refused = site.once("mlflow-user", code=1)
    assert "MLflow denied access to admin: HTTP Error 401" in refused
    assert "not-the-password" not in refused


# --- private


def _keep_what_vllm_found_out(site: Containers) -> None:
    """Fill the volume of caches as an earlier start does: else vLLM imports itself once more, to inspect the model."""
    volume = site.folder / "volumes/cache"
    shutil.copytree(os.environ["VLLM_CACHE_ROOT"], volume / ".cache/checkpoint-tracker/vllm")
    for path in (volume, *volume.rglob("*")):
        os.chown(path, OWNER, OWNER)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _holds(path: Path, secrets: set[str]) -> bool:
    data = path.read_bytes()
    return any(secret.encode() in data for secret in secrets)
