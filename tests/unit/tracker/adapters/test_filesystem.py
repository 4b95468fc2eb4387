"""The source over folders that a test writes by hand, on a clock that stands still until it is moved."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.fakes.clock import FakeClock
from tracker.adapters.filesystem import FilesystemSource
from tracker.adapters.filesystem_pins import MANIFEST
from tracker.domain.discovery import WatchOptions
from tracker.domain.watching import time_of_ns

SETTLE_S = 3.0
RESCAN_S = 10.0


@dataclass(kw_only=True)
class Watched:
    """A source, its folders, and a clock that starts now, because file times are real."""

    out: Path
    pins: Path
    clock: FakeClock
    source: FilesystemSource

    def look(self, after_s: float = 0.0) -> tuple[Checkpoint, ...]:
        self.clock.advance(after_s)
        return self.source.ready(self.clock.now())

    def settle(self) -> tuple[Checkpoint, ...]:
        """Look now, after a full sweep that notices everything, and when what it held has settled."""
        return self.look() + self.look(RESCAN_S) + self.look(RESCAN_S)

    def steps(self) -> list[int]:
        return [c.step for c in self.settle()]

    def reasons(self) -> list[tuple[int, str]]:
        return [(gap.step, gap.code) for gap in self.source.gaps()]


@contextmanager
def watching(root: Path, pattern: str = "checkpoint-*") -> Iterator[Watched]:
    marker = root / "clock"
    marker.touch()
    clock = FakeClock(time_of_ns(marker.stat().st_mtime_ns))
    out, pins = root / "out", root / "state" / "pins"
    options = WatchOptions(pattern=pattern, settle_s=SETTLE_S, rescan_s=RESCAN_S, polling=True)
    source = FilesystemSource("run", out, pins, options, clock)
    try:
        yield Watched(out=out, pins=pins, clock=clock, source=source)
    finally:
        source.close()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


def test_a_finished_checkpoint_is_held_at_once_and_returned_when_it_has_settled(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    assert watched.look() == ()
    assert watched.look(SETTLE_S - 0.5) == ()
    (checkpoint,) = watched.look(1.0)
    assert (checkpoint.run_id, checkpoint.step) == ("run", 10)
    assert checkpoint.source_uri == str(watched.out / "checkpoint-10")
    assert watched.look(RESCAN_S) == ()


def test_the_trainers_folder_is_never_touched(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    trainer.save_model(watched.out / "checkpoint-20", seed=2)
    (watched.out / "checkpoint-30").mkdir()
    before = trainer.everything_below(watched.out)
    assert watched.steps() == [10]
    assert trainer.everything_below(watched.out) == before


def test_weights_are_linked_and_small_files_are_copies(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (checkpoint,) = watched.settle()
    pin = Path(checkpoint.uri)
    assert (pin / "model.safetensors").samefile(folder / "model.safetensors")
    assert not (pin / "config.json").samefile(folder / "config.json")
    held = {
        "model.safetensors",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "trainer_state.json",
        MANIFEST,
    }
    assert {path.name for path in pin.iterdir()} == held
    (folder / "config.json").write_text("{}")
    assert "LlamaForCausalLM" in (pin / "config.json").read_text()


def test_a_checkpoint_deleted_right_after_it_was_held_is_not_lost(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    watched.look()
    shutil.rmtree(watched.out / "checkpoint-10")
    (checkpoint,) = watched.look()
    assert (Path(checkpoint.uri) / "model.safetensors").read_bytes() == trainer.weights(10)
    assert watched.source.gaps() == ()


def test_a_hold_survives_a_deletion_that_is_only_half_done(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    watched.look()
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()
    assert [c.step for c in watched.look()] == [10]


def test_what_is_already_being_deleted_when_it_is_first_seen_is_a_gap(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "tokenizer.json").unlink()
    later_ns = folder.stat().st_mtime_ns + 1_000_000_000
    os.utime(folder, ns=(later_ns, later_ns))
    assert watched.look() == ()
    shutil.rmtree(folder)
    assert watched.settle() == ()
    assert watched.reasons() == [(10, "E-CKPT-VANISHED")]


def test_a_half_written_checkpoint_is_never_returned_and_is_a_gap_once_later_ones_are_complete(
    watched: Watched,
) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "trainer_state.json").unlink()
    assert watched.steps() == []
    assert watched.source.gaps() == ()
    trainer.save(watched.out, 20)
    assert watched.steps() == [20]
    (gap,) = watched.source.gaps()
    assert (gap.step, gap.code, gap.source_uri) == (10, "E-CKPT-INCOMPLETE", str(folder))
    assert "trainer_state.json" in gap.message
    assert gap.hint


def test_a_gap_that_becomes_good_is_taken_and_is_no_gap_any_more(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "trainer_state.json").unlink()
    trainer.save(watched.out, 20)
    watched.settle()
    assert watched.reasons() == [(10, "E-CKPT-INCOMPLETE")]
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(10))
    assert watched.steps() == [10]
    assert watched.source.gaps() == ()


def test_a_checkpoint_that_vanishes_half_written_is_a_gap_with_what_was_missing(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "model.safetensors").unlink()
    watched.look()
    shutil.rmtree(folder)
    watched.look()
    (gap,) = watched.source.gaps()
    assert gap.code == "E-CKPT-VANISHED"
    assert "holds no weights" in gap.message
    watched.settle()
    assert len(watched.source.gaps()) == 1


def test_a_lost_step_that_was_never_seen_is_inferred_from_the_rhythm(watched: Watched) -> None:
    for step in (10, 20):
        trainer.save(watched.out, step)
        watched.settle()
    trainer.save(watched.out, 50)
    assert watched.steps() == [50]
    assert watched.reasons() == [(30, "E-CKPT-VANISHED"), (40, "E-CKPT-VANISHED")]
    assert watched.source.gaps()[0].source_uri == str(watched.out / "checkpoint-30")


def test_holes_from_before_the_first_look_are_not_ours(watched: Watched) -> None:
    for step in (10, 20, 50):
        trainer.save(watched.out, step)
    assert watched.steps() == [10, 20, 50]
    assert watched.source.gaps() == ()


def test_an_overwritten_step_is_a_new_checkpoint_with_another_digest(watched: Watched) -> None:
    trainer.save(watched.out, 10, seed=1)
    (first,) = watched.settle()
    trainer.save(watched.out, 10, seed=2)
    (second,) = watched.settle()
    assert first.step == second.step
    assert first.digest != second.digest
    assert (Path(first.uri) / "model.safetensors").read_bytes() == trainer.weights(1)
    assert (Path(second.uri) / "model.safetensors").read_bytes() == trainer.weights(2)


def test_a_step_saved_again_with_equal_weights_is_no_news(watched: Watched) -> None:
    trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == [10]
    shutil.rmtree(watched.out / "checkpoint-10")
    watched.look()
    trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == []


def test_weights_overwritten_in_place_get_a_pin_of_their_own(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10, seed=1)
    watched.settle()
    (folder / "model.safetensors").write_bytes(trainer.weights(2))
    (second,) = watched.settle()
    pinned = Path(second.uri) / "model.safetensors"
    assert not pinned.samefile(folder / "model.safetensors")
    (folder / "model.safetensors").write_bytes(trainer.weights(3))
    (third,) = watched.settle()
    assert pinned.read_bytes() == trainer.weights(2)
    assert (Path(third.uri) / "model.safetensors").read_bytes() == trainer.weights(3)


def test_a_tokenizer_that_comes_after_the_weights_is_in_the_pin(watched: Watched) -> None:
    folder = trainer.save_model(watched.out / "checkpoint-10", seed=1)
    watched.look()
    (folder / "tokenizer_config.json").write_text("{}")
    assert watched.look(SETTLE_S - 1) == ()
    (checkpoint,) = watched.look(RESCAN_S)
    assert (Path(checkpoint.uri) / "tokenizer_config.json").exists()


def test_a_save_without_trainer_state_waits_until_its_files_are_quiet(watched: Watched) -> None:
    trainer.save_model(watched.out / "checkpoint-10", seed=1)
    assert watched.look() == ()
    shutil.rmtree(watched.out / "checkpoint-10")
    assert watched.settle() == ()
    assert watched.reasons() == [(10, "E-CKPT-VANISHED")]


def test_a_save_without_trainer_state_is_sure_once_a_later_one_is_begun(watched: Watched) -> None:
    trainer.save_model(watched.out / "checkpoint-10", seed=1)
    watched.look()
    (watched.out / "checkpoint-20").mkdir()
    watched.look()
    shutil.rmtree(watched.out / "checkpoint-10")
    assert [c.step for c in watched.look()] == [10]


def test_runs_in_sub_folders_and_symbolic_links(watched: Watched) -> None:
    run = watched.out / "v0-20260101-000000"
    trainer.save(run, 10)
    trainer.save(run, 20)
    (run / "last-checkpoint").symlink_to(run / "checkpoint-20")
    (run / "checkpoint-99").symlink_to(run / "checkpoint-20")
    (watched.out / "latest").symlink_to(run)
    (run / "loop").symlink_to(run)
    found = watched.settle()
    assert [(c.run_id, c.step) for c in found] == [("run/v0-20260101-000000", 10), ("run/v0-20260101-000000", 20)]


def test_weights_behind_a_link_out_of_the_folder_are_refused(watched: Watched) -> None:
    elsewhere = trainer.save_model(watched.out.parent / "elsewhere", seed=1)
    folder = trainer.save(watched.out, 10)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(elsewhere / "model.safetensors")
    assert watched.steps() == []
    assert watched.reasons() == [(10, "E-CKPT-UNSAFE")]


def test_pickle_weights_are_a_gap(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert watched.steps() == []
    assert watched.reasons() == [(10, "E-CKPT-UNSAFE")]


def test_nan_weights_are_a_gap_and_the_next_checkpoint_goes_on(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    content = bytearray(trainer.weights(10))
    content[-4:] = b"\xff\xff\xff\x7f"
    (folder / "model.safetensors").write_bytes(content)
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(10))
    trainer.save(watched.out, 20)
    assert watched.steps() == [20]
    (gap,) = watched.source.gaps()
    assert gap.code == "E-CKPT-UNREADABLE"
    assert "NaN" in gap.message
    assert not list(watched.pins.rglob(".held-*"))
    trainer.save(watched.out, 10, seed=3)
    assert watched.steps() == [10]
    assert watched.source.gaps() == ()


def test_names_with_spaces_and_letters_of_any_script(tmp_path: Path) -> None:
    with watching(tmp_path, "шаг *") as watched:
        trainer.save(watched.out, 10).rename(watched.out / "шаг 10")
        trainer.save(watched.out / "запуск № 1", 10).rename(watched.out / "запуск № 1" / "шаг 10")
        found = watched.settle()
        assert [c.run_id for c in found] == ["run", "run/запуск № 1"]
        assert all((Path(c.uri) / "config.json").exists() for c in found)


def test_what_is_no_checkpoint_is_left_alone(watched: Watched) -> None:
    watched.out.mkdir()
    (watched.out / "checkpoint-10").write_text("a file")
    (watched.out / "checkpoint-20").symlink_to(watched.out / "checkpoint-20")
    (watched.out / "checkpoint-best").mkdir()
    (watched.out / ".hidden").mkdir()
    os.mkdir(os.fsencode(watched.out) + b"/\xff\xfe")  # noqa: PTH102 - a name that is no text
    assert watched.steps() == []
    assert watched.source.gaps() == ()


def test_an_output_folder_that_does_not_exist_yet_is_waited_for(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert watched.steps() == []
        assert watched.steps() == []
    assert [r.message for r in caplog.records] == [
        f"{watched.out} does not exist yet; waiting for the trainer to create it"
    ]
    trainer.save(watched.out, 10)
    assert watched.steps() == [10]


def test_an_output_folder_that_is_a_file_is_no_reason_to_die(watched: Watched) -> None:
    watched.out.write_text("a file")
    assert watched.steps() == []
    watched.out.unlink()
    trainer.save(watched.out, 10)
    assert watched.steps() == [10]


def test_pins_that_cannot_be_written_lose_nothing_while_the_checkpoint_lives(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    watched.pins.parent.write_text("a file where the folder of pins should be")
    assert watched.steps() == []
    assert watched.source.gaps() == ()
    watched.pins.parent.unlink()
    assert watched.steps() == [10]


def test_a_checkpoint_that_could_not_be_pinned_before_it_vanished_is_a_gap_with_the_reason(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    watched.pins.parent.write_text("a file where the folder of pins should be")
    watched.look()
    shutil.rmtree(watched.out / "checkpoint-10")
    watched.look()
    (gap,) = watched.source.gaps()
    assert gap.code == "E-CKPT-VANISHED"
    assert "cannot be pinned" in gap.message


def test_files_of_other_ranks_are_waited_for(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "rng_state.pth").rename(folder / "rng_state_1.pth")
    assert watched.steps() == []
    (folder / "rng_state_0.pth").write_bytes(b"\0")
    assert watched.steps() == [10]


def test_the_output_folder_may_be_deleted_and_made_again(watched: Watched) -> None:
    trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == [10]
    shutil.rmtree(watched.out)
    assert watched.steps() == []
    trainer.save(watched.out, 10, seed=2)
    assert watched.steps() == [10]


def test_waiting_ends_when_a_hold_has_settled(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        trainer.save(watched.out, 10)
        watched.look()
        watched.clock.advance(SETTLE_S)
        watched.source.wait(3600.0)
        assert [c.step for c in watched.look()] == [10]
