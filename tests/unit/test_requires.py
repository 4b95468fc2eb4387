"""A missing part of the system is named, and forbidden where everything must run."""

from pathlib import Path

import pytest

from tests.conftest import skipped_line
from tests.requires import requires_binary, small_disk


def test_a_program_that_is_there_is_found() -> None:
    assert requires_binary("sh").name == "sh"


def test_a_missing_program_skips_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACKER_TEST_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="the system package nosuch-pkg"):
        requires_binary("nosuch", "nosuch-pkg")


def test_a_missing_program_fails_where_nothing_may_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_TEST_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="forbids skipping"):
        requires_binary("nosuch")


def test_a_disk_that_may_not_be_mounted_skips_or_fails_likewise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mount").write_text("#!/bin/sh\nexit 32\n")
    (tmp_path / "mount").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for required, outcome in (("0", pytest.skip.Exception), ("1", pytest.fail.Exception)):
        monkeypatch.setenv("TRACKER_TEST_REQUIRE_ALL", required)
        with pytest.raises(outcome, match="the right to mount"), small_disk(tmp_path / required, size="1m"):
            pytest.fail("there is no disk")


def test_skips_become_one_line() -> None:
    assert skipped_line(["Skipped: needs b", "Skipped: needs a", "Skipped: needs a"]) == (
        "not run here: needs a (2 tests); needs b (1 test)"
    )
    assert skipped_line([]) == ""
