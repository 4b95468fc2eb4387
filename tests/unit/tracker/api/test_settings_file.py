"""A running watcher takes over a changed tracker.toml once it is whole and valid."""

from pathlib import Path

import pytest

from tests.commands import write_project
from tracker.api.opening import open_project
from tracker.api.settings_file import SettingsFile


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_project(tmp_path, "http://127.0.0.1:9/v1", rows=1)
    return tmp_path / "tracker.toml"


def settings(file: Path) -> SettingsFile:
    return SettingsFile(file, open_project(file), lambda: open_project(file))


def test_a_change_is_used_when_the_file_stays_as_it_is(file: Path) -> None:
    found = settings(file)
    assert found.changed() is None
    file.write_text(file.read_text() + "limit = 1\n")
    assert found.changed() is None, "perhaps an editor is still writing"
    project = found.changed()
    assert project is not None
    assert project.config.benchmark[1].limit == 1
    assert found.changed() is None, "reported once"
    file.unlink()
    assert [found.changed(), found.changed()] == [None, None]


def test_settings_that_are_put_right_again_are_reported(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    found, before = settings(file), file.read_text()
    file.write_text(before.replace("sums.jsonl", "gone.jsonl"))
    assert [found.changed(), found.changed()] == [None, None]
    file.write_text(before)
    assert [found.changed() for _ in range(4)] == [None] * 4
    assert [record.getMessage().partition("tracker.toml ")[2][:16] for record in caplog.records] == [
        "has changed, but",
        "is valid again: ",
    ]


@pytest.mark.parametrize(
    ("old", "new", "log"),
    [
        ('"r"', '"other"', "restart to apply settings in [run] and [store]"),
        ("[run]", "[running]", "the previous settings stay in use: E-CONFIG"),
        ("sums.jsonl", "gone.jsonl", "the previous settings stay in use: E-EVAL-DATA"),
        ("[run]", "# a comment\n[run]", ""),
    ],
)
def test_what_cannot_be_used_is_reported_once(
    file: Path, old: str, new: str, log: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = settings(file)
    file.write_text(file.read_text().replace(old, new))
    assert [found.changed() for _ in range(4)] == [None] * 4
    assert len(caplog.records) == (1 if log else 0)
    assert log in caplog.text
