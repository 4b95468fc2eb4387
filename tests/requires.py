"""What a test needs beyond the Python packages: used where it is there, else skipped with its name.

Under TRACKER_TEST_REQUIRE_ALL=1 nothing may skip: a missing part fails the test that needs it.
"""

from __future__ import annotations

import os
import shutil
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


# --- private


def _missing(reason: str) -> NoReturn:
    if os.environ.get("TRACKER_TEST_REQUIRE_ALL") == "1":
        pytest.fail(f"{reason}, and TRACKER_TEST_REQUIRE_ALL=1 forbids skipping")
    pytest.skip(reason)
