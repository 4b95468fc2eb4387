"""What the wheel needs and holds."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.requires import PROJECT

PACKAGES = ("eval_jobs", "tracker", "dashboards")
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def distribution(requirement: str) -> str:
    return re.split(r"[<>=\[; ]", requirement)[0].lower().replace("_", "-")


DECLARED = {distribution(r) for r in SETTINGS["dependencies"]}
LOADED_LATE = {
    distribution(r)
    for extra in ("s3", "postgresql", "apprise", "tensorboard")
    for r in SETTINGS["optional-dependencies"][extra]
}

GPU_ONLY = {"pynvml"}
"""Of nvidia-ml-py, the extra `gpu`, which is not installed where there is no GPU."""
ELSEWHERE = tuple(
    PROJECT / folder
    for folder in (
        "eval_jobs/serve/worker_extension",
        "eval_jobs/evaluate/lm_eval/child",
        "tracker/adapters/checkpoints/consolidate/child",
    )
)
"""Run in the environment of vLLM, of lm-evaluation-harness or of torch, and are imported nowhere else."""


def imported() -> set[str]:
    names = set()
    for package in PACKAGES:
        for path in (PROJECT / package).rglob("*.py"):
            if any(path.is_relative_to(folder) for folder in ELSEWHERE):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - set(PACKAGES)


def test_every_imported_package_is_a_declared_dependency() -> None:
    owners = packages_distributions()  # one that is not installed, as of an extra, goes by its own name
    undeclared = {
        name
        for name in imported()
        if not {d.lower().replace("_", "-") for d in owners.get(name, [name])} & (DECLARED | LOADED_LATE)
        and name not in GPU_ONLY
    }
    assert not undeclared


def test_vllm_is_an_extra_and_never_required() -> None:
    assert "vllm" not in DECLARED
    assert "torch" not in DECLARED
    assert [distribution(r) for r in SETTINGS["optional-dependencies"]["vllm"]] == ["vllm"]


def test_the_lock_names_no_host_and_pins_everything() -> None:
    lines = (PROJECT / "requirements" / "cpu.lock").read_text().splitlines()
    assert len(lines) > 100
    assert all(re.fullmatch(r"[a-z0-9._-]+(\[[a-z,]+\])?==[^ /]+", line) for line in lines)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=PROJECT, check=True, capture_output=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


@pytest.fixture
def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(built)


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert top == {*PACKAGES, f"checkpoint_tracker-{SETTINGS['version']}.dist-info"}


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if name.split("/")[0] in PACKAGES}
    files = {
        str(path.relative_to(PROJECT))
        for package in PACKAGES
        for path in (PROJECT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == files


def test_the_wheel_works_in_an_environment_and_a_home_of_its_own(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    (installed,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", tmp_path / "venv", "install", "--quiet", "--no-deps", "--no-index")
    subprocess.run([*pip, built], check=True)
    # Its dependencies are those of this environment. Of the paths in there, such as that of the sources, it sees none.
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    (tmp_path / "sums.jsonl").write_text('{"question": "2+2=", "answer": "4"}\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}

    def output(*command: str) -> str:
        program = tmp_path / "venv" / "bin" / command[0]
        return subprocess.run(
            [program, *command[1:]], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    paths = f"import {', '.join(PACKAGES)}; print(*[one.__path__[0] for one in ({', '.join(PACKAGES)})])"
    assert output("python", "-c", paths).split() == [str(installed / package) for package in PACKAGES]
    data = {path.suffix or path.name for package in PACKAGES for path in (installed / package).rglob("*.*")}
    assert {".j2", ".css", ".js", ".toml", ".typed", ".pyi"} <= data
    assert output("tracker", "--version") == f"tracker, version {SETTINGS['version']}\n"
    assert "report " in output("tracker", "--help"), "a command of the package `dashboards`"
    assert "scores exact sums.jsonl" in output("tracker", "init", "out")
    (benchmark,) = tomllib.loads((tmp_path / "tracker.toml").read_text())["benchmark"]
    assert benchmark == {"benchmark": "exact", "data": "sums.jsonl"}
