"""What a test needs beyond the Python packages: used where it is there, else skipped with its name.

Under TRACKER_TEST_REQUIRE_ALL=1 nothing may skip: a missing part fails the test that needs it.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

PROJECT = Path(__file__).parent.parent
SHARED_DATA = PROJECT.parent / "shared" / "data"


def requires_binary(name: str, package: str = "") -> Path:
    """Return the path of a program, else skip and name the Debian package that holds it."""
    found = shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    if found is None:
        _missing(f"needs the system package {package or name}")
    return Path(found)


def shared_data(relative: str) -> Path:
    """Return a path inside ../shared/data, else skip."""
    path = SHARED_DATA / relative
    if not path.exists():
        _missing(f"needs ../shared/data/{relative}")
    return path


@contextmanager
def small_disk(folder: Path, *, size: str) -> Iterator[None]:
    """Have a disk of its own at `folder`, else skip: mounting needs root. The test may unmount it earlier."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        _missing("needs the right to mount a file system")
    try:
        yield
    finally:
        if folder.is_mount():
            subprocess.run(["umount", "-l", str(folder)], check=True)


def requires_package(name: str) -> str:
    """Return the version of a Python package that only its own tests need, else skip."""
    try:
        return version(name)
    except PackageNotFoundError:
        _missing(f"needs the Python package {name}")


def requires_vllm() -> None:
    """Skip where vLLM is not installed beside the tracker: every project would have a finding."""
    if find_spec("vllm") is None:
        _missing("needs vLLM")


def requires_namespaces() -> None:
    """Skip where this process may not make a network and mounts of its own: that needs root."""
    command = ["unshare", "--net", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        _missing("needs the right to make namespaces")


# --- private


def _missing(reason: str) -> NoReturn:
    if os.environ.get("TRACKER_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and TRACKER_TEST_REQUIRE_ALL=1 forbids skipping")
    pytest.skip(reason)
