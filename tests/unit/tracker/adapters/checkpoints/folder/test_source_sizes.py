"""Files of a size or content that no trainer writes are a gap of their step, and fill neither memory nor log."""

import json
import os
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs import limits
from eval_jobs.host.bounded.json_text import TooLarge
from tests import trainer
from tests.watched import watching
from tracker.adapters.checkpoints.files import dcp_index
from tracker.adapters.checkpoints.folder import sweep

TIB = 1 << 40


def sparse(name: str, size: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        os.truncate(folder / name, size)

    return damage


def header(text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text.encode())

    return damage


def text(name: str, content: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_text(content)

    return damage


def long_name(folder: Path) -> None:
    header(json.dumps({"x" * 3_000_000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}))(folder)


def many_values(folder: Path) -> None:
    text("config.json", "[" + "[]," * limits.VALUES.most + "0]")(folder)


def index_of_nothing(folder: Path) -> None:
    """A pickle in which each byte makes an object of 60 bytes."""
    (folder / "model.safetensors").unlink()
    (folder / ".metadata").write_bytes(b"\x80\x02" + b"]" * (dcp_index.MAX_OBJECTS + 1) + b".")
    (folder / "__0_0.distcp").write_bytes(b"x")


def archive_of_many(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        for name in ("archive/data.pkl", "archive/version"):
            archive.writestr(name, b"x")
    content = (folder / "pytorch_model.bin").read_bytes()
    start = content.index(b"PK\x01\x02")
    end = content.index(b"PK\x05\x06")
    table = content[start:end] * 200_000
    last = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, len(table), start, 0)
    (folder / "pytorch_model.bin").write_bytes(content[:start] + table + last)


@pytest.fixture
def whole_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may take a second, after which a pass would leave the other folders to a later one."""
    monkeypatch.setattr(sweep, "PORTION_S", 60.0)


TOO_LARGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "configuration": (sparse("config.json", 100 << 20), "config.json is larger than 32 MiB"),
    "tokenizer": (sparse("tokenizer.json", TIB), "more than a file beside the weights may have"),
    "name of a tensor": (long_name, "the name of a tensor has 3000000 characters"),
    "sizes": (header('{"a": {"shape": [' + "9" * 4000 + "]}}"), "a size has 4000 digits"),
    "tensors": (header("{" + '"a":{},' * 250_000 + '"b":{}}'), "too many tensors"),
    "values": (many_values, "is larger than 2,000,000 values"),
    "nested": (text("config.json", "[" * 1_000_000), "nested too deeply"),
    "index": (index_of_nothing, "is not a DCP index"),
}


@pytest.mark.usefixtures("whole_passes")
@pytest.mark.parametrize("damage", TOO_LARGE)
def test_a_file_beyond_its_limit_is_a_gap_and_the_next_checkpoint_is_found(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change, words = TOO_LARGE[damage]
    with watching(tmp_path) as watched:
        change(trainer.save(watched.out, 10))
        trainer.save(watched.out, 20)
        assert watched.steps() == [20]
        (gap,) = watched.source.gaps()
    assert words in gap.message
    assert len(gap.message) + len(caplog.text) < 5 * limits.KEPT_CHARS


def test_a_folder_of_too_many_files_is_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FILES", limits.Limit(subject="files", most=20, unit="files", beyond=""))
    with watching(tmp_path) as watched:
        folder = trainer.save(watched.out, 10)
        for number in range(20):
            (folder / f"part-{number}").touch()
        trainer.save(watched.out, 20)
        assert watched.steps() == [20]
        (gap,) = watched.source.gaps()
    assert "more than 20 files" in gap.message


def test_a_trainer_state_that_is_too_large_to_be_parsed_still_states_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DOCUMENT", replace(limits.DOCUMENT, most=1 << 20))
    entry = json.dumps({"loss": 1.25, "step": 7}, indent=6)
    log = ",".join([entry] * (limits.DOCUMENT.most // len(entry) + 1))
    with watching(tmp_path) as watched:
        for step in (10, 20):
            state = trainer.save(watched.out, step) / "trainer_state.json"
            state.write_text(f'{{\n  "global_step": {step},\n  "log_history": [{log}],\n  "save_steps": 10\n}}\n')
        state.write_text(state.read_text()[:-3])
        trainer.save(watched.out, 30)
        assert watched.steps() == [10, 30]
        (gap,) = watched.source.gaps()
    assert (gap.step, gap.code) == (20, "E-CKPT-UNREADABLE")


def test_a_table_of_contents_is_read_up_to_its_limit(tmp_path: Path) -> None:
    archive_of_many(trainer.save(tmp_path, 10))
    with (
        pytest.raises(TooLarge, match="16 MiB"),
        dcp_index.open_archive(tmp_path / "checkpoint-10" / "pytorch_model.bin"),
    ):
        pytest.fail("it was opened")
