"""Whole sets of weights are read; anything else is named with its file."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.serve import worker_extension
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import (
    INDEX,
    BadWeights,
    TensorEntry,
    check_complete,
    layout_digest,
    read_entries,
    weight_names,
)
from tests.tiny_model import random_tensors, write_checkpoint, write_sharded_checkpoint
from tracker.adapters.checkpoints.files.safetensors_file import read_tensors


def read(folder: Path) -> dict[str, TensorEntry]:
    found = {}
    for name in weight_names(folder):
        with (folder / name).open("rb") as file:
            found[name] = read_entries(file, name)
    return check_complete(folder, found)


def header(folder: Path, document: object, *, data: bytes = b"") -> Path:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + data)
    return folder


def test_the_tensors_of_one_file_and_of_shards_are_those_that_were_written(tmp_path: Path) -> None:
    one, shards = write_checkpoint(tmp_path / "one"), write_sharded_checkpoint(tmp_path / "shards", shards=3)
    shapes = {name: ("F32", tensor.shape) for name, tensor in random_tensors(0).items()}
    for folder in (one, shards):
        assert {name: (entry.dtype, entry.shape) for name, entry in read(folder).items()} == shapes
    assert weight_names(shards) == tuple(f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))
    with (one / "model.safetensors").open("rb") as file:
        offsets = [(e.name, e.begin, e.end) for e in read_entries(file, "model.safetensors")]
    assert offsets == [(t.name, t.begin, t.end) for t in read_tensors([one / "model.safetensors"])]


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


BROKEN: list[tuple[object, str]] = [
    (b"", "invalid header"),
    (b"{", "invalid header"),
    (b"[]", "invalid header"),
    (b"7", "invalid header"),
    (b"\xff\xff", "invalid header"),
    (b"[" * 50_000, "invalid header"),
    ({"a": 3}, "invalid header"),
    ({"a": {}}, "invalid header"),
    ({"a": entry(dtype="F7")}, "unknown type F7"),
    ({"a": entry(shape=[3])}, "does not fit bytes"),
    ({"a": entry(shape=[-2])}, "invalid size"),
    ({"a": entry(shape=[2.0])}, "invalid size"),
    ({"a": entry(shape=[True, 2])}, "invalid size"),
    ({"a": entry(offsets=[8, 0])}, "does not fit bytes"),
    ({"a": entry(offsets=[0, 8, 9])}, "invalid header"),
    ({"a": entry(offsets=[4, 12])}, "begins at 4 instead of 0"),
    ({"a": entry(), "b": entry()}, "begins at 0 instead of 8"),
    ({"a": entry(), "b": entry(offsets=[8, 16])}, r"is .* bytes long \(expected .* from its header\)"),
    ({}, "bytes long"),
]


@pytest.mark.parametrize(("document", "words"), BROKEN)
def test_a_broken_header_is_named(document: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=words):
        read(header(tmp_path / "broken", document, data=bytes(8)))


def test_a_file_without_tensors_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="no tensors in"):
        read(header(tmp_path / "empty", {"__metadata__": {"format": "pt"}}))


@pytest.mark.parametrize("length", [0, 3, 7, 8, 9])
def test_a_file_that_ends_in_its_header_is_named(length: int, tmp_path: Path) -> None:
    folder = header(tmp_path / "short", {"a": entry()}, data=bytes(8))
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BadWeights, match="ends inside its header"):
        read(folder)


def test_a_header_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    folder = header(tmp_path / "huge", {"a": entry()})
    with (folder / "model.safetensors").open("r+b") as file:
        file.write((200_000_000).to_bytes(8, "little"))
        file.truncate(300_000_000)
    with pytest.raises(BadWeights, match=r"no safetensors header \(length 200000000\)"):
        read(folder)


@given(cut=st.integers(min_value=1), more=st.binary(min_size=1, max_size=64))
def test_a_file_of_any_other_length_is_refused(cut: int, more: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = header(tmp_path_factory.mktemp("length") / "m", {"a": entry()}, data=bytes(8))
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for wrong in (whole[: cut % len(whole)], whole + more):
        path.write_bytes(wrong)
        with pytest.raises(BadWeights):
            read(folder)


def edit_index(change: Callable[[dict[str, str]], object]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        change(index["weight_map"])
        (folder / INDEX).write_text(json.dumps(index))

    return apply


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"

INDEXES: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / FIRST).unlink(), f"no {FIRST} in"),
    (lambda folder: (folder / "model.safetensors").write_bytes(b""), r"unexpected weights file model\.safetensors in"),
    (
        lambda folder: (folder / "model-00003.safetensors").write_bytes(b""),
        r"unexpected weights file model-00003\.safetensors in",
    ),
    (lambda folder: (folder / FIRST).write_bytes((folder / SECOND).read_bytes()), f"is in both {FIRST} and {SECOND}"),
    (edit_index(lambda files: files.pop("lm_head.weight")), r"lm_head\.weight in no file"),
    (edit_index(lambda files: files.update(more=FIRST)), "more in .* in no file"),
    (edit_index(lambda files: files.update({"lm_head.weight": SECOND})), r"lm_head\.weight in .*2-of"),
    (edit_index(lambda files: files.update(more="../x.safetensors")), "does not list files of its folder"),
    (edit_index(lambda files: files.clear()), "does not list files of its folder"),
    (lambda folder: (folder / INDEX).write_text("{}"), "has no valid weight map"),
    (lambda folder: (folder / INDEX).write_text("[]"), "has no valid weight map"),
    (lambda folder: (folder / INDEX).write_text('{"weight_map": []}'), "has no valid weight map"),
    (lambda folder: (folder / INDEX).write_text("{"), "has no valid weight map"),
]


@pytest.mark.parametrize(("damage", "words"), INDEXES)
def test_shards_and_index_that_disagree_are_named(damage: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    folder = write_sharded_checkpoint(tmp_path / "shards")
    damage(folder)
    with pytest.raises(BadWeights, match=words):
        read(folder)


def test_the_layout_is_that_of_names_types_and_shapes_in_any_order() -> None:
    left = {"a": ("F32", (2, 3)), "b": ("BF16", ())}
    assert layout_digest(left) == layout_digest(dict(reversed(left.items())))
    for other in ({"a": ("F32", (3, 2)), "b": ("BF16", ())}, {"a": ("F32", (2, 3))}, {**left, "b": ("F16", ())}):
        assert layout_digest(other) != layout_digest(left)


def test_what_runs_inside_vllm_needs_nothing_of_ours() -> None:
    folder = Path(worker_extension.__file__).parent
    # As in another environment: no site-packages, no current folder.
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import tracker_worker.weight_files, tracker_worker.gate"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, cwd="/")
