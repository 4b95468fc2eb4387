"""No space, no permission, no file events: each in a process of its own, because limits cannot be taken back."""

import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests import trainer
from tests.forking import FRESH
from tests.watchers import pin_as_nobody, pin_with_small_files_only
from tracker.adapters.checkpoints.folder.hints import Hints

Outcome = tuple[str, str] | None


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "pins").mkdir()
    (folder / "pins").chmod(0o777)
    yield folder
    for path in (folder / "pins", *(folder / "out").iterdir()):
        path.chmod(0o755)
    shutil.rmtree(folder)


def outcome(target: object, *arguments: object) -> Outcome:
    receiver, sender = FRESH.Pipe(duplex=False)
    process = FRESH.Process(target=target, args=(*arguments, sender))  # type: ignore[arg-type]
    process.start()
    result: Outcome = receiver.recv()
    process.join()
    return result


def test_a_full_disk_is_called_by_its_name_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = trainer.save(tmp_path / "out", 10)
    trainer.write_json(folder / "tokenizer.json", "x" * 50_000)
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(10))
    result = outcome(pin_with_small_files_only, folder, tmp_path / "pins", 10_000)
    assert result is not None
    code, message = result
    assert code == "E-STORE-DISK"
    assert str(folder) in message
    assert not list((tmp_path / "pins").glob("*/*"))


@pytest.mark.parametrize("closed", [".", "model.safetensors", "config.json"])
def test_what_may_not_be_read_says_so(closed: str, open_folder: Path) -> None:
    folder = trainer.save(open_folder / "out", 10)
    (folder / closed).chmod(0)
    result = outcome(pin_as_nobody, folder, open_folder / "pins")
    assert result is not None
    assert "Permission denied" in result[1]
    assert str(folder) in result[1]


def test_pins_that_may_not_be_written_say_so(open_folder: Path) -> None:
    folder = trainer.save(open_folder / "out", 10)
    (open_folder / "pins").chmod(0o555)
    result = outcome(pin_as_nobody, folder, open_folder / "pins")
    assert result is not None
    assert result[0] == "E-STORE"
    assert "Permission denied" in result[1]


def test_weights_of_another_user_are_copied_where_linking_them_is_forbidden(open_folder: Path) -> None:
    folder = trainer.save(open_folder / "out", 10)
    assert outcome(pin_as_nobody, folder, open_folder / "pins") is None
    (pin,) = (open_folder / "pins" / "run").iterdir()
    assert (pin / "model.safetensors").read_bytes() == trainer.weights(10)


def follow_without_descriptors(folder: Path, sender: Connection) -> None:
    """Try to watch when no file descriptor is left."""
    hints = Hints(folder, lambda _: None)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    blocked = [os.dup(0) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(blocked) + 1, kept[1]))
    results = [hints.follow(), hints.follow()]
    resource.setrlimit(resource.RLIMIT_NOFILE, kept)
    hints.close()
    sender.send((str(results), "; ".join(records)))


def test_without_file_events_the_disk_is_looked_at_instead_and_this_is_said_once(tmp_path: Path) -> None:
    result = outcome(follow_without_descriptors, tmp_path)
    assert result is not None
    assert result[0] == "[False, False]"
    assert result[1].count("no file events for") == 1
