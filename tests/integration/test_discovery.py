"""Discovery beside real writers: a stock Hugging Face Trainer, a fast one with rotation, and kills at every line."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.deep import moments_to_kill
from tests.forking import FRESH
from tests.requires import PROJECT
from tests.watchers import CLOCK, OPTIONS, look_and_leave, opened, watch_for_ever
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.adapters.curves import TrainerCurves
from tracker.domain.checkpoints.watching import WatchOptions
from tracker.domain.records.types import Gap

PATIENCE_S = 120.0
TRIES = 3


def started(root: Path, *command: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (root / "writer.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *command], cwd=PROJECT, env=environment, stdout=log, stderr=subprocess.STDOUT
        )


def watched(source: FilesystemSource, writer: subprocess.Popen[bytes]) -> list[Checkpoint]:
    """Watch as the daemon does until the writer has ended."""
    found: list[Checkpoint] = []
    while writer.poll() is None:
        found += source.ready(CLOCK.now())
        source.wait(1.0)
    return found


def watched_to_the_end(source: FilesystemSource, writer: subprocess.Popen[bytes], count: int) -> list[Checkpoint]:
    """Watch as the daemon does until the writer has ended, so many were found and the last one has settled."""
    found = watched(source, writer)
    ended_s, waited_s = CLOCK.monotonic_s(), 0.0
    while waited_s < OPTIONS.rescan_s + OPTIONS.settle_s or (len(found) < count and waited_s < PATIENCE_S):
        found += source.ready(CLOCK.now())
        source.wait(1.0)
        waited_s = CLOCK.monotonic_s() - ended_s
    return found


@pytest.fixture
def source(tmp_path: Path) -> Iterator[FilesystemSource]:
    world = opened(tmp_path)
    world.ready(CLOCK.now())
    yield world
    world.close()


def test_no_checkpoint_of_a_stock_trainer_is_missed_and_rotation_works_as_without_us(
    source: FilesystemSource, tmp_path: Path
) -> None:
    writer = started(tmp_path, "tests.integration.hf_training", str(tmp_path / "out"), str(tmp_path / "pins"))
    found = watched_to_the_end(source, writer, 16)
    assert writer.returncode == 0, (tmp_path / "writer.log").read_text()
    assert source.gaps() == ()
    for run, files in (("v0-whole", 1), ("v1-shards", 4)):
        of_run = [c for c in found if c.run_id == f"run/{run}"]
        assert [c.step for c in of_run] == list(range(5, 41, 5))
        assert {path.name for path in (tmp_path / "out" / run).iterdir()} == {"checkpoint-35", "checkpoint-40"}
        for checkpoint in of_run:
            assert_weights_are_whole(checkpoint, files)
        losses = [p.step for p in TrainerCurves().read(of_run[-1]) if p.key == "train/loss"]
        assert losses == list(range(1, 41))
    assert_a_restart_finds_the_same(found, tmp_path)


def assert_weights_are_whole(checkpoint: Checkpoint, files: int) -> None:
    paths = list(Path(checkpoint.uri).glob("*.safetensors"))
    tensors = {name: tensor for path in paths for name, tensor in load_file(path).items()}
    assert (len(paths), len(tensors)) == (files, 21)
    assert all(np.isfinite(tensor).all() for tensor in tensors.values())


def assert_a_restart_finds_the_same(found: list[Checkpoint], tmp_path: Path) -> None:
    before = trainer.everything_below(tmp_path / "out")
    again = opened(tmp_path)
    try:
        assert set(again.ready(CLOCK.now())) == set(found)
    finally:
        again.close()
    assert trainer.everything_below(tmp_path / "out") == before


def test_twenty_checkpoints_at_speed_are_all_held_while_the_reader_is_busy(
    source: FilesystemSource, tmp_path: Path
) -> None:
    options = ("--saves", "20", "--pause", "0.2", "--keep", "2", "--pins", str(tmp_path / "pins"))
    writer = started(tmp_path, "tests.trainer", str(tmp_path / "out"), *options)
    found: list[Checkpoint] = []
    while writer.poll() is None:
        found += source.ready(CLOCK.now())
        CLOCK.sleep(1.0)  # the caller judges and publishes; three checkpoints come and go meanwhile
    found += watched_to_the_end(source, writer, 20 - len(found))
    assert sorted(c.step for c in found) == list(range(10, 201, 10))
    assert source.gaps() == ()
    for checkpoint in found:
        assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == trainer.weights(checkpoint.step)


def test_a_trainer_that_writes_every_two_seconds_and_keeps_two_loses_none(tmp_path: Path) -> None:
    """It waits for nobody. A machine that stood still for as long as a checkpoint lives gets another try."""
    assert any(lost_beside_a_trainer(tmp_path / str(number)) == set() for number in range(TRIES))


def lost_beside_a_trainer(root: Path) -> set[int]:
    """Return the steps that were not held."""
    (root / "out").mkdir(parents=True)
    world = opened(root)
    try:
        world.ready(CLOCK.now())
        options = ("--saves", "4", "--pause", "2", "--keep", "2")
        writer = started(root, "tests.trainer", str(root / "out"), *options)
        found = watched_to_the_end(world, writer, 0)
    finally:
        world.close()
    return set(range(10, 41, 10)) - {c.step for c in found}


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep the processors busy meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_trainer_of_large_shards_on_a_busy_machine_loses_none_although_the_tracker_is_killed(tmp_path: Path) -> None:
    """Keeps 2 and writes 100 MB every second or so: the tracker is killed in the middle and started again at once."""
    first = FRESH.Process(target=watch_for_ever, args=(tmp_path,))
    first.start()
    folders = (str(tmp_path / "out"), str(tmp_path / "pins"))
    writer = started(tmp_path, "tests.integration.sharded_training", *folders, "--saves", "6", "--pause", "1")
    wait_for_pins(tmp_path, writer, 1)  # what is imported until then needs no load
    with ExitStack() as stack:
        with load(3):
            wait_for_pins(tmp_path, writer, 4)
            first.kill()
            first.join()
            source = stack.enter_context(closing(opened(tmp_path)))
            found = watched(source, writer)
        found += watched_to_the_end(source, writer, 6 - len(found))
        gaps = source.gaps()
    assert writer.returncode == 0, (tmp_path / "writer.log").read_text()
    assert [c.step for c in found] == list(range(10, 61, 10))
    assert gaps == ()
    assert len(list((tmp_path / "out").iterdir())) == 2
    for checkpoint in (found[0], found[-1]):
        shards = [load_file(path) for path in sorted(Path(checkpoint.uri).glob("*.safetensors"))]
        assert [list(shard) for shard in shards] == [[f"part.{number}.weight"] for number in range(4)]
        assert all(
            abs(float(part.mean()) - checkpoint.step - i) < 0.1 for i, s in enumerate(shards) for part in s.values()
        )
    shutil.rmtree(tmp_path / "pins")  # a gigabyte


def wait_for_pins(root: Path, writer: subprocess.Popen[bytes], count: int) -> None:
    """Return when so many are held, or the writer has ended."""
    while len(list((root / "pins").glob("*/*"))) < count and writer.poll() is None:
        CLOCK.sleep(0.05)


# --- killed


def killed_at(root: Path, number: int) -> bool:
    """Return whether the process lived long enough to be killed."""
    process = FRESH.Process(target=look_and_leave, args=(root, number))
    process.start()
    process.join()
    return process.exitcode == -signal.SIGKILL


def looked_at_again(root: Path) -> list[Checkpoint]:
    source = opened(root, WatchOptions(settle_s=0.0, polling=True))
    try:
        return [c for _ in range(3) for c in source.ready(CLOCK.now())]
    finally:
        source.close()


def test_a_kill_at_any_change_to_the_pins_loses_and_doubles_nothing(tmp_path: Path) -> None:
    for number in moments_to_kill():
        root = tmp_path / str(number)
        folder = trainer.save(root / "out", 10)
        before = trainer.everything_below(root / "out")
        if not killed_at(root, number):
            break
        (checkpoint,) = looked_at_again(root)
        assert (Path(checkpoint.uri) / "model.safetensors").samefile(folder / "model.safetensors")
        assert [path.name for path in (root / "pins" / "run").iterdir()] == [Path(checkpoint.uri).name]
        assert trainer.everything_below(root / "out") == before
    assert number > 15, "the kills must reach from the first folder to the last rename"


def test_what_was_held_when_the_tracker_was_killed_survives_the_trainers_rotation(tmp_path: Path) -> None:
    survived = []
    for number in moments_to_kill():
        root = tmp_path / str(number)
        trainer.save(root / "out", 10)
        if not killed_at(root, number):
            break
        shutil.rmtree(root / "out" / "checkpoint-10")
        found = looked_at_again(root)
        survived.append(len(found))
        left = [path.name for path in (root / "pins").glob("*/*")]
        assert left == [Path(c.uri).name for c in found], "nothing half-made is left"
        for checkpoint in found:
            assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == trainer.weights(10)
    assert survived == sorted(survived), "once held, always held"
    assert survived[0] == 0
    assert survived[-1] == 1


def test_steps_lost_while_no_tracker_ran_are_gaps_and_nothing_else_is_lost(tmp_path: Path) -> None:
    out, pins = tmp_path / "out", tmp_path / "pins"
    first = FRESH.Process(target=watch_for_ever, args=(tmp_path,))
    first.start()
    for number in range(1, 6):
        trainer.save(out, number * 10, keep=2)
        trainer.wait_until_held(pins, number)
    first.kill()
    first.join()
    for number in range(6, 21):
        trainer.save(out, number * 10, keep=2)
    source = opened(tmp_path)
    found: list[Checkpoint] = []
    try:
        for number in range(20, 26):
            if number > 20:
                trainer.save(out, number * 10, keep=2)
            while len(list(pins.glob("*/*/.pin.json"))) < number - 13:
                found += source.ready(CLOCK.now())
                source.wait(0.1)
        while len(found) < 12:
            found += source.ready(CLOCK.now())
            source.wait(1.0)
        gaps: tuple[Gap, ...] = source.gaps()
    finally:
        source.close()
    assert sorted(c.step for c in found) == [*range(10, 51, 10), *range(190, 251, 10)]
    assert sorted(step for gap in gaps for step in gap.steps) == list(range(60, 181, 10))
    assert {gap.code for gap in gaps} == {"E-CKPT-VANISHED"}
