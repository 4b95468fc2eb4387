"""Clocks that jump, and file servers whose clock is another one."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests import trainer
from tests.watched import RESCAN_S, SETTLE_S, Watched, watching

HOURS = 3600.0


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watching(tmp_path) as world:
        yield world


def test_a_clock_that_is_set_forward_makes_nothing_settle_that_was_just_written(watched: Watched) -> None:
    folder = trainer.save_model(watched.out / "checkpoint-10", seed=1)
    assert watched.look() == ()
    watched.clock.jump(5 * HOURS)
    assert watched.look() == ()
    (folder / "tokenizer_config.json").write_text("{}")
    (checkpoint,) = watched.settle()
    assert (Path(checkpoint.uri) / "tokenizer_config.json").exists()


def test_a_clock_that_is_set_back_makes_nothing_wait_for_hours(watched: Watched) -> None:
    trainer.save_model(watched.out / "checkpoint-10", seed=1)
    watched.look()
    watched.clock.jump(-5 * HOURS)
    assert [c.step for c in watched.look(SETTLE_S + 0.1)] == [10]
    trainer.save(watched.out, 20)
    assert [c.step for c in watched.settle()] == [20]


def test_a_clock_that_is_set_back_does_not_stop_the_full_looks(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10, seed=1)
    assert watched.steps() == [10]
    watched.clock.jump(-5 * HOURS)
    (folder / "model.safetensors").write_bytes(trainer.weights(2))  # in place: only a full look sees it
    assert [c.step for c in (*watched.look(RESCAN_S), *watched.look(RESCAN_S))] == [10]


@pytest.mark.parametrize("ahead_s", [5 * HOURS, -5 * HOURS])
def test_a_file_server_whose_clock_is_wrong_delays_nothing(ahead_s: float, watched: Watched) -> None:
    for step in (10, 20):
        shifted(trainer.save(watched.out, step), ahead_s)
    found = watched.look() + watched.look(SETTLE_S + 0.1)
    assert [c.step for c in found] == [10, 20]
    assert watched.source.gaps() == ()


def test_what_is_still_being_written_by_a_server_ahead_of_us_is_waited_for(watched: Watched) -> None:
    folder = trainer.save(watched.out, 10)
    (folder / "trainer_state.json").unlink()
    shifted(folder, 5 * HOURS)
    assert watched.steps() == []
    trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(10))
    shifted(folder, 5 * HOURS)
    assert watched.steps() == [10]


@pytest.fixture
def any_time() -> Iterator[Path]:
    """A folder on a file system that takes times beyond those of a calendar, where there is one."""
    memory = Path("/dev/shm")  # noqa: S108 - the only one that takes them
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def test_files_whose_times_are_none_are_evaluated_when_they_have_rested(any_time: Path) -> None:
    times = {10: 10**12, 20: -(10**10), 30: 0, 40: 4 * 10**9, 50: 10**10}
    with watching(any_time) as watched:
        for step, seconds in times.items():
            folder = trainer.save(watched.out, step)
            for path in (
                folder / "config.json",
                folder / "model.safetensors",
                *list(folder.iterdir())[step % 3 :],
                folder,
            ):
                os.utime(path, (seconds, seconds))
        assert watched.look() == watched.look(SETTLE_S - 0.5) == ()
        found = watched.look(1.0)
        assert [checkpoint.step for checkpoint in found] == [*times]
        assert all(abs(watched.clock.now() - one.ready_at) < timedelta(minutes=10) for one in found)
        (pin,) = watched.pins.glob("*/step-00000010-*")
        os.utime(pin, (10**12, 10**12))
    (held,) = [pin.rename(pin.with_name(".held-other-1-2-x"))]
    with watching(any_time) as watched:
        assert [checkpoint.step for checkpoint in watched.look()] == [20, 30, 40, 50]
    assert held.exists(), "it may be that of another machine"


def shifted(folder: Path, by_s: float) -> None:
    for path in (*folder.iterdir(), folder):
        changed_ns = path.stat().st_mtime_ns + int(by_s * 1e9)
        os.utime(path, ns=(changed_ns, changed_ns))
