"""Names and links that lead out of a run's folder: each is refused, or said."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.errors import CheckpointUnreadable
from tests import trainer
from tests.tiny_model import write_checkpoint, write_lora, write_sharded_checkpoint
from tests.watched import Watched, watching
from tracker.adapters.checkpoints.folder.assessed import assessed
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.manifest import MANIFEST


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


def test_a_checkpoint_folder_that_is_a_link_is_ignored(watched: Watched) -> None:
    elsewhere = trainer.save(watched.out.parent / "elsewhere", 10)
    watched.out.mkdir()
    (watched.out / "checkpoint-10").symlink_to(elsewhere)
    (watched.out / "run").symlink_to(elsewhere.parent)
    assert watched.steps() == []
    assert watched.source.gaps() == ()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "trainer_state.json"])
def test_a_file_that_is_a_link_out_of_the_watched_folder_is_refused(name: str, watched: Watched) -> None:
    elsewhere = trainer.save(watched.out.parent / "elsewhere", 10)
    folder = trainer.save(watched.out, 10)
    (folder / name).unlink()
    (folder / name).symlink_to(elsewhere / name)
    assert watched.steps() == []
    assert not list(watched.pins.glob("*/step-*"))


def test_a_link_inside_the_watched_folder_is_followed_and_the_pin_holds_the_file(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    blob = watched.out / "blobs" / "abc"
    blob.parent.mkdir()
    (folder / "model.safetensors").rename(blob)
    (folder / "model.safetensors").symlink_to(Path("..") / "blobs" / "abc")
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(10))
    (checkpoint,) = watched.settle()
    pinned = Path(checkpoint.uri) / "model.safetensors"
    assert not pinned.is_symlink()
    assert pinned.samefile(blob)


@pytest.mark.parametrize("shard", ["../other/model.safetensors", "/etc/model.safetensors", "a/../../b.safetensors"])
def test_shards_that_the_index_puts_outside_are_refused(shard: str, watched: Watched) -> None:
    folder = write_sharded_checkpoint(watched.out / "checkpoint-10", shards=2)
    index = folder / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    document["weight_map"]["lm_head.weight"] = shard
    trainer.write_json(index, document)
    assert watched.steps() == []
    assert watched.reasons() == [(10, "E-CKPT-UNREADABLE")]


def adapter(out: Path, base: str) -> Path:
    model = write_checkpoint(out.parent / "base")
    folder = write_lora(model, out / "checkpoint-10", rank=2)
    config = json.loads((folder / "adapter_config.json").read_text())
    trainer.write_json(folder / "adapter_config.json", {**config, "base_model_name_or_path": base})
    return folder


@pytest.mark.parametrize("base", ["../base", "base", "./other", "../twice", ".."])
def test_a_relative_base_model_is_the_only_folder_of_that_name_above_the_checkpoint(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    for place in (tmp_path / "twice", project / "twice"):
        write_checkpoint(place)
    folder = adapter(project / "out", base)
    if base.endswith("base"):
        pinned = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
        assert pinned.base_model == str(project / "base")
        monkeypatch.chdir(folder.parent)
        named = assessed(Path(folder.name))
        assert named.complete is not None
        assert named.complete.base_model == str(project / "base")
        return
    with pytest.raises(CheckpointUnreadable, match="by a path relative to the trainer's folder") as caught:
        pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    assert "absolute path" in caught.value.hint


def test_a_base_model_of_the_hub_is_never_taken_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = adapter(tmp_path / "out", "acme/tiny-base")
    checkpoint = pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins")
    note = "base model acme/tiny-base is not an absolute path"
    assert note in caplog.text
    assert note in (Path(checkpoint.uri) / MANIFEST).read_text()


def test_a_base_model_may_lie_anywhere_by_its_full_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = adapter(tmp_path / "out", str(tmp_path / "base"))
    assert pin_folder(folder, run_id="run", pins_dir=tmp_path / "pins").base_model == str(tmp_path / "base")
    assert caplog.text == ""


@pytest.mark.parametrize("run_id", ["../../x", "..", "/etc/x", "a/../../b", "\x00", "x" * 300, "\u202e\x1b[2J"])
def test_a_runs_name_never_leads_its_pins_elsewhere(run_id: str, tmp_path: Path) -> None:
    folder = trainer.save(tmp_path / "out", 10)
    pins = tmp_path / "state" / "pins"
    before = {path for path in tmp_path.rglob("*") if not path.is_relative_to(pins)}
    checkpoint = pin_folder(folder, run_id=run_id, pins_dir=pins)
    assert Path(checkpoint.uri).resolve().parent.parent == pins.resolve()
    assert checkpoint.run_id == run_id
    after = {path for path in tmp_path.rglob("*") if not path.is_relative_to(pins)}
    assert after - before <= {tmp_path / "state"} | {path for path in after if "consolidation" in path.name}
