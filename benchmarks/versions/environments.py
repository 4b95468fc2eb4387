"""Environments with one version of something, kept in build/versions until what is in them is to change.

python = interpreter("mlflow-3.1.4", "mlflow==3.1.4", "sqlalchemy<2.1")
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.requires import PROJECT

FOLDER = PROJECT / "build" / "versions"
NOT_ON_A_CPU = PROJECT / "requirements" / "overrides.txt"
_READY = "ready.txt"


class CannotInstall(Exception):
    """A version cannot be installed from the package index of this machine."""


def interpreter(name: str, *requirements: str, overrides: tuple[str, ...] = ()) -> Path:
    """Return the Python of an environment that holds `requirements`; `overrides` replace what packages ask for."""
    folder = FOLDER / name
    python = folder / "bin" / "python"
    wanted = "\n".join((*requirements, *overrides))
    if _is_ready(folder, wanted):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _uv("venv", "--python", sys.executable, str(folder))
    replaced = folder / "overrides.txt"
    replaced.write_text(NOT_ON_A_CPU.read_text() + "\n".join(overrides))
    _uv("pip", "install", "--compile-bytecode", "--python", str(python), "--override", str(replaced), *requirements)
    (folder / _READY).write_text(wanted)
    return python


def overlay(name: str, *requirements: str) -> Path:
    """Return a folder that holds packages without what they depend on, to be put before others on the path."""
    folder = FOLDER / name
    wanted = "\n".join(requirements)
    if not _is_ready(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        _uv("pip", "install", "--no-deps", "--target", str(folder), *requirements)
        (folder / _READY).write_text(wanted)
    return folder


def versions_in(python: Path, *packages: str) -> list[str]:
    """Return which versions of packages an environment holds."""
    program = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    return subprocess.run([python, "-c", program, *packages], check=True, capture_output=True, text=True).stdout.split()


# --- private


def _is_ready(folder: Path, wanted: str) -> bool:
    ready = folder / _READY
    return ready.is_file() and ready.read_text() == wanted


def _uv(*arguments: str) -> None:
    environment = dict(os.environ)
    if certificate := environment.get("PIP_CERT"):  # uv does not read pip's settings
        environment["SSL_CERT_FILE"] = certificate
    if links := environment.get("PIP_FIND_LINKS"):
        environment["UV_FIND_LINKS"] = links.replace(" ", ",")
    elif "install" in arguments:
        arguments = (*arguments, "--torch-backend", "cpu")
    if index := environment.get("PIP_INDEX_URL"):
        environment["UV_DEFAULT_INDEX"] = index
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run([uv, *arguments, "--quiet"], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotInstall(" ".join(done.stderr.split())[:300])
