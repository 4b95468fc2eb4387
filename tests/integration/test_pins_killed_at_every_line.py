"""A kill at every single line of holding, publishing and finding pins, then a new start over what is left."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.deep import moments_to_kill, sized
from tests.killing import killed_at
from tests.watchers import AT_ONCE, CLOCK, opened
from tracker.adapters.checkpoints.files.listing import CheckpointLocation, facts_of_folder, read_listing
from tracker.adapters.checkpoints.pins import hold as filesystem_pins
from tracker.adapters.checkpoints.pins import manifest as filesystem_manifest
from tracker.adapters.checkpoints.pins import recovery as filesystem_recovery
from tracker.adapters.checkpoints.pins import soundness as filesystem_soundness
from tracker.adapters.checkpoints.pins.hold import HELD, hold, publish
from tracker.adapters.checkpoints.pins.recovery import find_pins
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.pin import Pin

# A killed process closes no file either; here the garbage collector finds them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MODULES = (filesystem_pins, filesystem_manifest, filesystem_soundness, filesystem_recovery)


def pin_one(root: Path, step: int) -> None:
    """Hold and publish one checkpoint, as a source does."""
    publish(hold_one(root, step))


def hold_one(root: Path, step: int) -> Pin:
    folder = root / "out" / f"checkpoint-{step}"
    facts = facts_of_folder(folder)
    assert facts is not None
    complete = assess(read_listing(facts, step))
    assert isinstance(complete, Complete)
    pin = hold(CheckpointLocation(run_id="run", step=step, path=folder), facts, complete, root / "pins")
    assert pin is not None
    return pin


def bury(root: Path) -> None:
    """Give what this process holds to one that is dead."""
    for folder in (root / "pins").glob(f"*/{HELD}*"):
        folder.rename(folder.with_name(folder.name.replace(f"-{os.getpid()}-", "-4194305-")))


def after_a_new_start(root: Path) -> list[Checkpoint]:
    source = opened(root, AT_ONCE)
    try:
        return [c for _ in range(2) for c in source.ready(CLOCK.now())]
    finally:
        source.close()


def pinned(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "pins").rglob("*"))


def identities(found: list[Checkpoint], root: Path) -> list[tuple[int, str, str]]:
    return [(c.step, c.digest, str(Path(c.uri).relative_to(root))) for c in found]


def test_a_kill_at_any_line_of_holding_and_publishing_ends_in_the_same_pins(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    trainer.save(undisturbed / "out", 10)
    pin_one(undisturbed, 10)
    expected = identities(after_a_new_start(undisturbed), undisturbed), pinned(undisturbed)
    killed: set[str] = set()
    for number in moments_to_kill():
        root = tmp_path / str(number)
        trainer.save(root / "out", 10)
        before = trainer.everything_below(root / "out")
        with killed_at(number, *MODULES) as kill:
            pin_one(root, 10)
        if not kill.happened:
            break
        killed.add(kill.where)
        bury(root)
        assert (identities(after_a_new_start(root), root), pinned(root)) == expected, kill.where
        assert trainer.everything_below(root / "out") == before, kill.where
        shutil.rmtree(root)
    assert len(killed) > sized(20, 60), "the kills must reach every part of holding and publishing"


def test_a_kill_at_any_line_of_finding_the_pins_again_loses_none_and_leaves_no_half_made_ones(tmp_path: Path) -> None:
    undisturbed = left_behind(tmp_path / "undisturbed")
    expected = identities(after_a_new_start(undisturbed), undisturbed), pinned(undisturbed)
    assert [step for step, _, _ in expected[0]] == [10, 20, 30]
    for number in moments_to_kill():
        root = left_behind(tmp_path / str(number))
        with killed_at(number, filesystem_recovery, filesystem_manifest) as kill:
            find_pins(root / "pins", "run", root / "out", CLOCK.now())
        if not kill.happened:
            break
        assert (identities(after_a_new_start(root), root), pinned(root)) == expected, kill.where
        shutil.rmtree(root)
    assert number > 40


def left_behind(root: Path) -> Path:
    """Leave a published pin, one that is damaged, a hold that is whole, and one that is half-made."""
    for step in (10, 20, 30):
        trainer.save(root / "out", step)
    pin_one(root, 10)
    pin_one(root, 20)
    hold_one(root, 30)
    bury(root)
    (root / "pins" / "run" / f"{HELD}{socket.gethostname()}-4194305-1-aaaaaaaa").mkdir()
    damaged = next((root / "pins" / "run").glob("step-00000020-*"))
    (damaged / "model.safetensors").unlink()
    shutil.rmtree(root / "out" / "checkpoint-10")
    shutil.rmtree(root / "out" / "checkpoint-30")
    return root
