"""Checkpoints that cannot be evaluated are named once, with the reason, and the watching goes on."""

import os
import shutil
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

from tests import trainer
from tests.watched import Watched, watching
from tracker.adapters.checkpoints import folder
from tracker.adapters.checkpoints.files.listing import CheckpointLocation
from tracker.adapters.checkpoints.folder import sweep
from tracker.adapters.checkpoints.folder.once import pin_folder
from tracker.adapters.checkpoints.pins import hold, publisher
from tracker.domain.checkpoints.gaps import unsettled, without
from tracker.domain.checkpoints.listing import Facts


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


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


def test_a_lost_step_that_only_a_killed_process_knew_of_is_found_again(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        for step in (10, 20, 40):
            trainer.save(watched.out, step)
            watched.settle()
        assert watched.reasons() == [(30, "E-CKPT-VANISHED")]
    with watching(tmp_path) as watched:
        watched.look()
        assert watched.reasons() == [(30, "E-CKPT-VANISHED")]
        assert [gap.is_inferred for gap in watched.source.gaps()] == [True]


def test_a_step_far_away_is_one_gap_and_what_comes_between_is_held_and_leaves_it(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        for step in (10, 20):
            trainer.save(watched.out, step)
        assert watched.steps() == [10, 20]
        far = trainer.save_model(watched.out / f"checkpoint-{10**12}", seed=3)
        trainer.write_json(far / "trainer_state.json", {"global_step": 10**12, "save_steps": 10})
        assert watched.steps() == [10**12]
        trainer.save(watched.out, 30)
        trainer.save(watched.out, 500)
        assert watched.steps() == [30, 500]
        (gap,) = watched.source.gaps()
        assert (gap.step, gap.last_step, gap.count) == (30, 10**12 - 10, 10**11 - 3)
        assert "99,999,999,997 checkpoints, steps 30 to 999999999990," in gap.message
        left = list(without(gap, [30, 500]))
        assert [(one.step, one.last_step, one.count) for one in left] == [
            (40, 490, 46),
            (510, 10**12 - 10, 10**11 - 51),
        ]
    with watching(tmp_path) as watched:
        watched.look()
        assert [list(unsettled([one], [gap], ())) for one in watched.source.gaps()] == [[], []], "it is in the history"


def test_a_step_beyond_the_highest_is_no_checkpoint_and_is_logged_once(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    trainer.save(watched.out, 10)
    for name in ("checkpoint-1000000000001", "checkpoint-1e3", "checkpoint--5"):
        trainer.save_model(watched.out / name, seed=1)
    assert watched.steps() == [10]
    watched.settle()
    assert caplog.text.count("steps are above 1,000,000,000,000: ") == 1, caplog.text
    assert watched.source.gaps() == ()


def test_an_early_checkpoint_pinned_by_hand_makes_no_later_step_a_gap(tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        trainer.save(watched.out, 50)
        trainer.save(watched.out, 60)
        assert watched.steps() == [50, 60]
    early = trainer.save(watched.out, 10)
    pin_folder(early, run_id="run", pins_dir=watched.pins)
    shutil.rmtree(early)
    with watching(tmp_path) as watched:
        assert [checkpoint.step for checkpoint in watched.look()] == [10, 50, 60]
        assert watched.reasons() == []


def test_a_model_under_another_name_with_a_step_of_its_own_is_a_gap_and_best_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with watching(tmp_path, "checkpoint-*") as watched:
        trainer.save(watched.out, 10)
        for name in ("checkpoint_10", "step_20", "best"):
            trainer.save_model(watched.out / name, seed=3)
        assert watched.steps() == [10]
        assert watched.reasons() == [(20, "E-CKPT-NAME")]
        assert f"models without a step: {watched.out / 'best'}; evaluate one with" in caplog.text


UNUSABLE = {
    "models without a number": ("first", "best"),
    "dates": ("2026-11-25_10-00-00", "2026-11-25_12-00-00"),
    "a file": ("ckpt.pt",),
    "files": ("ep0-ba100-rank0.pt", "latest-rank0.pt"),
    "numbers": ("100/model/w.safetensors", "200/model/w.safetensors"),
    "deeper": ("run-a/hf/step-10", "run-a/hf/step-20"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_run_in_which_nothing_is_a_checkpoint_is_one_gap_until_something_is(kind: str, tmp_path: Path) -> None:
    with watching(tmp_path) as watched:
        watched.look()
        for number, name in enumerate(UNUSABLE[kind]):
            path = watched.out / name
            if path.suffix:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"weights")
            else:
                trainer.save_model(path, seed=number)
        assert watched.steps() == []
        assert watched.reasons() == [(0, "E-CKPT-NAMES")]
        trainer.save(watched.out, 10)
        assert (watched.steps(), watched.reasons()) == ([10], [])


def test_what_was_there_before_watching_began_is_no_gap(tmp_path: Path) -> None:
    for name in ("first", "best"):
        trainer.save_model(tmp_path / "out" / name, seed=1)
    with watching(tmp_path) as watched:
        assert (watched.steps(), watched.reasons()) == ([], [])
        for name in ("class_weights.pt", "criterion.pt", "runs/0/a.txt", "0/a.txt", "1/a.txt", "val/x/step_0/a.png"):
            (watched.out / name).parent.mkdir(parents=True, exist_ok=True)
            (watched.out / name).write_bytes(b"no model")
        assert (watched.steps(), watched.reasons()) == ([], [])


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


def test_nan_weights_are_a_gap_and_the_next_checkpoint_is_evaluated(watched: Watched) -> None:
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


def test_pins_that_cannot_be_written_lose_nothing_while_the_checkpoint_lives(watched: Watched) -> None:
    trainer.save(watched.out, 10)
    watched.pins.parent.write_text("a file where the folder of pins should be")
    assert watched.steps() == []
    assert watched.source.gaps() == ()
    watched.pins.parent.unlink()
    assert watched.steps() == [10]


def test_a_checkpoint_without_a_configuration_is_held_through_rotation_and_restarts_and_served_with_a_later_one(
    tmp_path: Path,
) -> None:
    base = trainer.save_model(tmp_path / "base", seed=9)
    with watching(tmp_path) as watched:
        for step in (10, 20):
            (trainer.save(watched.out, step) / "config.json").unlink()
            watched.settle()
        assert watched.steps() == []
        assert watched.reasons() == [(10, "E-CKPT-INCOMPLETE")], "the newest one may still get its configuration"
        shutil.rmtree(watched.out / "checkpoint-10")
        shutil.rmtree(watched.out / "checkpoint-20")
        watched.settle()
    with watching(tmp_path, config_from=str(base)) as watched:
        found = watched.settle()
        while watched.source.is_behind():
            watched.source.wait(0.1)
            found += watched.look()
        assert [checkpoint.step for checkpoint in found + watched.look()] == [10, 20]
        assert watched.reasons() == []
        for checkpoint in found:
            assert (Path(checkpoint.uri) / "config.json").read_bytes() == (base / "config.json").read_bytes()


@pytest.mark.parametrize("place", ["sweep.facts_of_folder", "sweep.hold", "sweep.read_listing"])
def test_a_bug_over_one_folder_is_a_gap_of_that_one_with_one_traceback(
    place: str, watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = f"tracker.adapters.checkpoints.folder.{place}"
    real = attrgetter(place)(folder)

    def buggy(what: CheckpointLocation | Facts | Path, *arguments: object, **named: object) -> object:
        if str(getattr(what, "path", what)).endswith("checkpoint-20"):
            raise RecursionError("too deep")
        return real(what, *arguments, **named)

    monkeypatch.setattr(module, buggy)
    for step in (10, 20, 30):
        trainer.save(watched.out, step)
    assert watched.steps() == [10, 30]
    (gap,) = watched.source.gaps()
    assert (gap.step, gap.code, "RecursionError: too deep" in gap.message) == (20, "E-CKPT-UNREADABLE", True)
    assert caplog.text.count("Traceback") == 1
    monkeypatch.undo()
    assert [c.step for _ in range(5) for c in watched.settle()] == [20], "it is tried again"
    assert watched.source.gaps() == ()


def test_a_bug_over_what_is_published_is_a_gap_of_that_one_and_a_bug_in_the_sweep_ends_no_thread(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publisher, "publish", lambda pin: hold.publish(pin) if pin.step != 20 else 1 // 0)
    for step in (10, 20, 30):
        trainer.save(watched.out, step)
    assert watched.steps() == [10, 30]
    assert [(gap.step, "ZeroDivisionError" in gap.message) for gap in watched.source.gaps()] == [(20, True)]
    monkeypatch.setattr(sweep, "places_in", lambda *_, **__: 1 // 0)
    assert watched.settle() == ()
    assert caplog.text.count("Traceback") == 2
