"""Clocks that jump, and file servers whose clock is another one."""

import os
from collections.abc import Iterator
from pathlib import Path

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


def shifted(folder: Path, by_s: float) -> None:
    for path in (*folder.iterdir(), folder):
        changed_ns = path.stat().st_mtime_ns + int(by_s * 1e9)
        os.utime(path, ns=(changed_ns, changed_ns))
