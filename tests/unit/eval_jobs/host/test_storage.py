"""Files that users name: what is replaced, what is written to, and what is refused."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from eval_jobs.errors import DiskFull, StoreError
from eval_jobs.host.storage import written
from tests.requires import PROJECT

PAGE = b"<html>new</html>"
TO_STDOUT = """
import sys
from pathlib import Path
from eval_jobs.host.storage import written
print("before")
with written(Path("/dev/stdout"), hint="") as file:
    file.write(b"page\\n")
print("after")
"""


def write(path: Path) -> None:
    with written(path, hint="choose another file") as file:
        file.write(PAGE)


def test_a_file_is_replaced_with_its_permissions_and_one_that_fails_stays(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), written(path, hint="") as file:
        file.write(PAGE + bytes(1 // 0))
    assert path.read_bytes() == b"old"
    write(path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (PAGE, 0o640)
    write(tmp_path / "new.html")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "new.html").stat().st_mode & 0o777 == 0o666 & ~umask
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["new.html", "report.html"]


@pytest.mark.parametrize("is_there", [True, False])
def test_the_file_that_links_lead_to_is_replaced_and_the_links_stay(tmp_path: Path, is_there: bool) -> None:  # noqa: FBT001
    (tmp_path / "far").mkdir()
    file, link, first = tmp_path / "far" / "report.html", tmp_path / "far" / "link", tmp_path / "first"
    link.symlink_to("report.html")
    first.symlink_to(link)
    if is_there:
        file.write_bytes(b"old")
    write(first)
    assert file.read_bytes() == PAGE
    assert (first.is_symlink(), link.is_symlink(), file.is_symlink()) == (True, True, False)
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["far", "first", "link", "report.html"]


def test_pipes_and_devices_are_written_to_and_stay(tmp_path: Path) -> None:
    pipe, link, heard = tmp_path / "pipe", tmp_path / "null", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join()
    assert heard == [PAGE]
    assert pipe.is_fifo()
    link.symlink_to("/dev/null")
    write(link)
    assert link.is_char_device()
    with pytest.raises(DiskFull, match="cannot write /dev/full"):
        write(Path("/dev/full"))


def test_standard_output_gets_the_page_where_it_stands(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    for _ in range(2):
        with output.open("ab") as file:  # as `>> output.txt` in a shell
            subprocess.run([sys.executable, "-c", TO_STDOUT], stdout=file, cwd=PROJECT, check=True)
    assert output.read_text() == "before\npage\nafter\n" * 2
    done = subprocess.run([sys.executable, "-c", TO_STDOUT], stdout=subprocess.PIPE, cwd=PROJECT, check=True)
    assert done.stdout == b"before\npage\nafter\n"


def test_folders_sockets_and_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for name, words in (("folder", "Is a directory"), ("socket", "it is a socket"), ("circle", "symbolic links")):
            with pytest.raises(StoreError, match=f"cannot write .*{name}: .*{words}") as caught:
                write(tmp_path / name)
            assert caught.value.hint == "choose another file"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["circle", "folder", "socket"]
