"""Installs packages that extend the tracker, as a person does, into a folder of their own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.requires import PROJECT

EXAMPLE = PROJECT / "examples" / "plugin"

SERVER = f"{sys.executable} -m tests.fakes.command_server {{model}} {{port}}"
"""As `serve.options.command`."""


def installed(package: Path, target: Path) -> Path:
    """Build and install a package into `target`; return it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(target), str(package)], check=True, timeout=600)
    return target


def written(folder: Path, *, version: str = "1.0", needs: str = "", points: Mapping[str, str], code: str) -> Path:
    """Write a package of one module as an installed one, with these entry points by `group:name`; return its folder."""
    name = folder.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    demand = f"Requires-Dist: checkpoint-tracker{needs}\n" if needs else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{demand}")
    lines = (
        f"[{point.partition(':')[0]}]\n{point.partition(':')[2]} = {name}:{what}\n" for point, what in points.items()
    )
    (info / "entry_points.txt").write_text("".join(lines))
    return folder


def environment(*folders: Path) -> dict[str, str]:
    """Return an environment in which these packages are found, and our tests' servers."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, folders), str(PROJECT)])}
