"""Training states that the frameworks wrote become safetensors that hold the very same weights."""

import os
import pickle
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from eval_jobs.errors import CheckpointError, CheckpointIncomplete, CheckpointUnsafe, ConsolidationFailed, DiskFull
from eval_jobs.types import Checkpoint, CheckpointFormat
from tests import trainer
from tests.deep import moments_to_kill
from tests.forking import FRESH
from tests.integration.raw_states import states
from tests.integration.raw_watcher import STAND_IN, found_in_the_end, opened, stand_in, watch_until
from tests.watchers import CLOCK, pin_with_small_files_only, watch_for_ever
from tracker.adapters.checkpoints.consolidate.consolidator import CHILD, Consolidator
from tracker.adapters.checkpoints.files import dcp_index
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, read_listing
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins.hold import hold
from tracker.adapters.checkpoints.pins.manifest import read_pin
from tracker.cli.commands.to_set_up.init import command as init
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.listing import Listing, StateIndex
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.watching import WatchOptions

__all__ = ["states"]

KINDS = {
    "fsdp": ("out-fsdp/checkpoint-10", "base"),
    "dcp": ("out-dcp/step-10", "tied"),
    "zero1": ("out-zero1/checkpoint-1", "base"),
    "zero2": ("out-zero2/checkpoint-1/global_step1", "tied"),
    "zero3": ("out-zero3/checkpoint-2", ""),
    "bin1": ("out-bin/checkpoint-1", ""),
    "bin2": ("out-bin/checkpoint-2", ""),
    "bin3": ("out-bin/checkpoint-3", ""),
}
"""Kind -> where its state is (DeepSpeed's also without the folder above it), and where its configuration comes from."""

TIED = {"dcp", "zero2", "bin1"}


def options_of(states: Path, kind: str) -> WatchOptions:
    config_from = KINDS[kind][1]
    return WatchOptions(
        config_from=str(states / config_from) if config_from else "", allow_pickle=kind.startswith("bin")
    )


def pinned(states: Path, kind: str, pins: Path) -> Checkpoint:
    source = states / KINDS[kind][0]
    return pin_folder(source, run_id="run", pins_dir=pins, options=options_of(states, kind))


@pytest.mark.parametrize("kind", ["dcp", "zero2", "bin1", "bin3"])  # the tests below convert the others
def test_a_state_becomes_safetensors_with_the_weights_that_were_trained(
    kind: str, states: Path, tmp_path: Path
) -> None:
    before = trainer.everything_below(states / KINDS[kind][0])
    checkpoint = pinned(states, kind, tmp_path / "pins")
    assert trainer.everything_below(states / KINDS[kind][0]) == before
    assert_trained(checkpoint, states, kind)
    assert checkpoint.format is (CheckpointFormat.LORA if kind == "bin3" else CheckpointFormat.FULL)
    names = {path.name for path in Path(checkpoint.uri).iterdir()}
    config = "adapter_config.json" if kind == "bin3" else "config.json"
    assert {"adapter_model.safetensors" if kind == "bin3" else "model.safetensors", config} <= names
    assert not [n for n in names if n.endswith((".bin", ".pt", ".distcp", ".py")) or n in {".metadata", "latest"}]
    assert not [path for path in Path(checkpoint.uri).iterdir() if path.is_dir()]
    assert list((tmp_path / "consolidation").iterdir()) == []


def test_the_same_state_gives_the_same_bytes_and_so_the_same_identity(states: Path, tmp_path: Path) -> None:
    first, second = (pinned(states, "bin2", tmp_path / name) for name in ("pins-1", "pins-2"))
    assert first.digest == second.digest
    assert_trained(first, states, "bin2")


def assert_trained(checkpoint: Checkpoint, states: Path, kind: str) -> None:
    (weights,) = Path(checkpoint.uri).glob("*.safetensors")
    found, expected = load_file(weights), load_file(states / "expected" / f"{kind}.safetensors")
    if kind in TIED:
        head = expected.pop("lm_head.weight", expected["model.embed_tokens.weight"])
        np.testing.assert_array_equal(head, expected["model.embed_tokens.weight"])
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == np.float32, "as config.json of the base model says"
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)


def test_accelerate_makes_the_same_of_an_fsdp_state(states: Path) -> None:
    merged, expected = load_file(states / "merged/model.safetensors"), load_file(states / "expected/fsdp.safetensors")
    assert merged.keys() == expected.keys()
    assert all((merged[name] == expected[name]).all() for name in merged)


# --- watched


@pytest.fixture
def root(states: Path, tmp_path: Path) -> Path:
    """An output folder with what a stock Trainer wrote under ZeRO 3."""
    shutil.copytree(states / "out-zero3", tmp_path / "out")
    return tmp_path


def test_a_state_is_held_before_rotation_and_found_after_a_kill_in_the_middle_of_its_conversion(
    root: Path, states: Path
) -> None:
    watcher = FRESH.Process(target=watch_for_ever, args=(root,))
    watcher.start()
    pid = wait_for_child(root)
    assert watcher.pid is not None
    os.kill(watcher.pid, signal.SIGKILL)
    watcher.join()
    wait_for_end_of(pid)
    shutil.rmtree(root / "out/checkpoint-2")
    source = opened(root)
    try:
        (checkpoint,) = found_in_the_end(source)
        assert source.gaps() == ()
        assert source.ready(CLOCK.now()) == ()
    finally:
        source.close()
    assert_trained(checkpoint, states, "zero3")
    assert [path.name for path in (root / "pins/run").iterdir()] == [Path(checkpoint.uri).name]


def test_a_kill_at_any_change_to_the_pins_loses_and_doubles_nothing(states: Path, tmp_path: Path) -> None:
    script = STAND_IN.format(python=sys.executable, weights=states / "expected/zero3.safetensors")
    python = stand_in(tmp_path, script)
    for number in moments_to_kill():
        root = tmp_path / str(number)
        shutil.copytree(states / "out-zero3", root / "out")
        process = FRESH.Process(target=watch_until, args=(root, python, number))
        process.start()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            break
        source = opened(root, python)
        try:
            (checkpoint,) = found_in_the_end(source)
            assert source.gaps() == ()
        finally:
            source.close()
        pin = Path(checkpoint.uri)
        assert [path.name for path in (root / "pins/run").iterdir()] == [pin.name]
        assert not [path for path in pin.iterdir() if path.is_dir() or path.name == "latest"]
        assert (pin / "model.safetensors").read_bytes() == (states / "expected/zero3.safetensors").read_bytes()
    assert process.exitcode == 0
    assert number > 30, "the kills must reach from the first folder to the last rename"


def wait_for_child(root: Path) -> int:
    for _ in range(2400):
        if list((root / "pins").glob("*/.held-*/.consolidating")) and (pids := children_of(root)):
            return pids[0]
        CLOCK.sleep(0.05)
    pytest.fail("no conversion was started")


def children_of(root: Path) -> list[int]:
    """Return the conversions whose working folder is below `root`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(CHILD).encode() in (entry / "cmdline").read_bytes() and (
                    entry / "cwd"
                ).readlink().is_relative_to(root):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for_end_of(pid: int) -> None:
    for _ in range(2400):
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except OSError:
            return
        CLOCK.sleep(0.05)
    pytest.fail("the conversion outlived the tracker")


# --- what cannot be done here


def held(root: Path, pins: Path) -> Pin:
    place = CheckpointLocation(run_id="run", step=2, path=root / "out/checkpoint-2")
    facts = facts_of_folder(place.path)
    assert facts is not None
    complete = assess(read_listing(facts, 2))
    assert isinstance(complete, Complete)
    pin = hold(place, facts, complete, pins)
    assert pin is not None
    return pin


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("kill -9 $$", ("killed by SIGKILL", "out-of-memory")),
        ("echo no >&2; exit 3", ("exited with code 3", ".log")),
        ("sleep 60", ("no progress for 0.5 s", ".log")),
        (
            f'exec {sys.executable} -S "$@"',
            ("No module named", "watch.python"),
        ),
    ],
    ids=["memory", "ended", "silent", "no torch"],
)
def test_a_conversion_that_this_machine_cannot_do_is_reported_and_its_pin_is_kept(
    script: str, words: tuple[str, str], root: Path
) -> None:
    pin = held(root, root / "pins")
    silence_s = 0.5 if "sleep" in script else 60.0
    consolidator = Consolidator(
        python=stand_in(root, f"#!/bin/sh\n{script}\n"), allow_pickle=False, log_dir=root / "logs", silence_s=silence_s
    )
    with pytest.raises(ConsolidationFailed) as caught:
        consolidator.whole(pin)
    assert words[0] in caught.value.message
    assert words[1] in caught.value.hint
    assert read_pin(Path(pin.folder)) == pin
    assert not (Path(pin.folder) / ".consolidating").exists()


def test_an_interpreter_that_is_not_there_is_named(root: Path) -> None:
    pin = held(root, root / "pins")
    consolidator = Consolidator(python=str(root / "none"), allow_pickle=False, log_dir=root / "logs")
    with pytest.raises(ConsolidationFailed, match="none: No such file"):
        consolidator.whole(pin)


def test_a_disk_that_fills_up_while_weights_are_written_is_a_full_disk(root: Path) -> None:
    receiver, sender = FRESH.Pipe(duplex=False)
    arguments = (root / "out/checkpoint-2", root / "pins", 100_000, sender)
    process = FRESH.Process(target=pin_with_small_files_only, args=arguments)
    process.start()
    error = receiver.recv()
    process.join()
    assert error is not None
    assert error[0] == "E-STORE-DISK"
    assert str(root / "out/checkpoint-2") in error[1]


def test_a_state_that_lacks_room_is_not_read_again_before_there_is_room(root: Path) -> None:
    pin = held(root, root / "pins")
    answer = '{"type": "error", "kind": "disk", "message": "no room", "needed_bytes": 1000000000000000000}'
    script = f"#!/bin/sh\necho run >> {root}/runs\necho '{answer}'\nsleep 10\n"
    consolidator = Consolidator(python=stand_in(root, script), allow_pickle=False, log_dir=root / "logs")
    for _ in range(2):
        with pytest.raises(DiskFull, match=r"cannot convert .*checkpoint-2 to safetensors"):
            consolidator.whole(pin)
    assert (root / "runs").read_text() == "run\n"
    assert read_pin(Path(pin.folder)) == pin


# --- pickles


def test_a_deepspeed_state_that_would_run_code_is_refused_unless_pickles_are_allowed(
    states: Path, tmp_path: Path
) -> None:
    source, options = states / "out-hostile/checkpoint-1", WatchOptions(config_from=str(states / "base"))
    with pytest.raises(CheckpointUnsafe, match=r"os\.makedirs") as caught:
        pin_folder(source, run_id="run", pins_dir=tmp_path / "pins", options=options)
    assert "watch.allow_pickle" in caught.value.hint
    assert not (states / "ran").exists()
    allowed = WatchOptions(config_from=str(states / "base"), allow_pickle=True)
    checkpoint = pin_folder(source, run_id="run", pins_dir=tmp_path / "pins", options=allowed)
    assert (states / "ran").exists()
    assert checkpoint.unpickled
    assert_trained(checkpoint, states, "zero1")


class Call:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (self.folder,))


def test_the_index_of_a_dcp_state_is_read_without_running_what_it_names(states: Path, tmp_path: Path) -> None:
    source = tmp_path / "step-10"
    shutil.copytree(states / "out-dcp/step-10", source)
    (source / ".metadata").write_bytes(pickle.dumps(Call(tmp_path / "ran")))
    with pytest.raises(CheckpointUnsafe, match=r"\.metadata references posix\.mkdir"):
        pin_folder(source, run_id="run", pins_dir=tmp_path / "pins", options=options_of(states, "dcp"))
    assert not (tmp_path / "ran").exists()


def test_a_large_index_is_read_in_a_process_of_its_own(states: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = states / "out-dcp/step-10/.metadata"
    here = dcp_index.read_index(index)
    monkeypatch.setattr(dcp_index, "MAX_PICKLE_BYTES", 1)
    assert isinstance(here, StateIndex)
    assert dcp_index.read_index(index) == here


def test_a_bin_file_is_refused_unless_pickles_are_allowed(states: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsafe, match=r"pickle \(pytorch_model\.bin\)") as caught:
        pin_folder(states / KINDS["bin1"][0], run_id="run", pins_dir=tmp_path / "pins")
    assert "watch.allow_pickle = true" in caught.value.hint


# --- what is not whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_with_any_file_missing_or_cut_off_is_not_taken(kind: str, states: Path, tmp_path: Path) -> None:
    source, copy = states / KINDS[kind][0], tmp_path / Path(KINDS[kind][0]).name
    options = options_of(states, kind)
    complete = assess(whole_listing(source, options), allow_pickle=options.allow_pickle)
    assert isinstance(complete, Complete)
    for name in complete.weights:
        for is_cut in (False, True):
            shutil.copytree(source, copy)
            broken(copy / name, is_cut=is_cut)
            again = assess(whole_listing(copy, options), allow_pickle=options.allow_pickle)
            assert not isinstance(again, Complete), (name, is_cut)
            shutil.rmtree(copy)


def whole_listing(folder: Path, options: WatchOptions) -> Listing:
    facts = facts_of_folder(folder)
    assert facts is not None
    return read_listing(facts, None, config_from=options.config_from)


def broken(path: Path, *, is_cut: bool) -> None:
    if is_cut:
        os.truncate(path, path.stat().st_size - 100)
    else:
        path.unlink()


# --- configuration


def test_the_configuration_above_a_sharded_state_is_taken_only_if_it_is_surely_of_the_model(
    states: Path, tmp_path: Path
) -> None:
    source = tmp_path / "out/checkpoint-10"
    shutil.copytree(states / "out-fsdp/checkpoint-10", source)
    with pytest.raises(CheckpointIncomplete, match=r"no config\.json") as caught:
        pin_folder(source, run_id="run", pins_dir=tmp_path / "pins")
    assert "watch.config_from" in caught.value.hint
    config = tmp_path / "out/config.json"
    text = (states / "base/config.json").read_text()
    config.write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(CheckpointIncomplete, match="may belong to another model"):
        pin_folder(source, run_id="run", pins_dir=tmp_path / "pins")
    config.write_text(text)
    shutil.copyfile(states / "base/tokenizer.json", tmp_path / "out/tokenizer.json")
    checkpoint = pin_folder(source, run_id="run", pins_dir=tmp_path / "pins")
    assert {"config.json", "tokenizer.json"} <= {path.name for path in Path(checkpoint.uri).iterdir()}
    assert_trained(checkpoint, states, "fsdp")


def test_init_shows_the_source_format_of_the_weights_and_what_is_missing(states: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    arguments = ["--config", str(tmp_path / "tracker.toml"), "--force", "--yes"]
    zero = runner.invoke(init, [str(states / "out-zero3"), *arguments])
    assert "1 checkpoint up to checkpoint-2 (full, to be converted from DeepSpeed ZeRO shards)" in zero.output
    fsdp = runner.invoke(init, [str(states / "out-fsdp"), *arguments])
    assert "1 checkpoint up to checkpoint-10 (no config.json)" in fsdp.output


def test_nothing_is_read_through_a_path_that_leaves_the_folder(states: Path, tmp_path: Path) -> None:
    source = tmp_path / "checkpoint-1"
    shutil.copytree(states / "out-zero1/checkpoint-1", source)
    (source / "latest").write_text("../checkpoint-1/global_step1")
    with pytest.raises(CheckpointError, match=r"latest references .*, but that folder does not exist"):
        pin_folder(
            source, run_id="run", pins_dir=tmp_path / "pins", options=WatchOptions(config_from=str(states / "base"))
        )
