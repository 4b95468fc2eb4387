"""The demo's folder: made anew, never anybody else's, never pulled away from under a running demo."""

import subprocess
import sys
from pathlib import Path

import pytest

from examples.tiny_forgetting.demo_folder import MARKER, FolderUnusable, fresh_folder

DEMO = Path(__file__).parents[3] / "examples" / "tiny_forgetting" / "demo.py"


def test_a_missing_or_empty_folder_is_taken(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "a" / "demo"):
        assert [p.name for p in (tmp_path / "a" / "demo").iterdir()] == [MARKER]
    (tmp_path / "empty").mkdir()
    with fresh_folder(tmp_path / "empty"):
        assert (tmp_path / "empty" / MARKER).is_file()


def test_what_an_earlier_demo_left_is_removed(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "demo"):
        (tmp_path / "demo" / "old").write_text("left over", encoding="utf-8")
    with fresh_folder(tmp_path / "demo"):
        assert [p.name for p in (tmp_path / "demo").iterdir()] == [MARKER]


def test_somebody_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years", encoding="utf-8")
    with pytest.raises(FolderUnusable, match="not from the demo") as error, fresh_folder(tmp_path):
        pass
    assert error.value.exit_code == 2
    assert (tmp_path / "thesis.tex").read_text(encoding="utf-8") == "years"


def test_a_file_or_a_link_in_its_place_is_left_alone(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "demo"):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "demo")
    (tmp_path / "file").write_text("", encoding="utf-8")
    for name in ("link", "file"):
        with pytest.raises(FolderUnusable, match="is not a folder"), fresh_folder(tmp_path / name):
            pass
    assert (tmp_path / "demo" / MARKER).is_file()


def test_a_second_demo_is_told_who_works_there(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "demo") as marker:
        marker.write("train.py, pid 17\ntracker watch, pid 18\n")
        marker.flush()
        with (
            pytest.raises(FolderUnusable, match=r"\(train.py, pid 17 and tracker watch, pid 18\)"),
            fresh_folder(tmp_path / "demo"),
        ):
            pass
        assert (tmp_path / "demo" / MARKER).is_file()


def test_a_process_that_outlives_a_killed_demo_keeps_the_folder(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "demo") as marker:
        left_over = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[marker.fileno()]
        )
    try:
        with pytest.raises(FolderUnusable, match="another demo is running"), fresh_folder(tmp_path / "demo"):
            pass
    finally:
        left_over.communicate(b"\n")
    with fresh_folder(tmp_path / "demo"):
        pass


def test_the_demo_names_an_unusable_folder_and_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(DEMO), "--dir", str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 2
    assert str(tmp_path) in done.stdout
    assert "--dir" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
