"""How soon a checkpoint is taken: at once where its end is proven and heard, after `settle_s` everywhere else."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.clock import FakeClock
from tests.trainer import save, save_model
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.domain.checkpoints.watching import PROMPT_S, WatchOptions, time_of_ns

SETTLE_S = 600.0
"""No test may wait for it by accident."""


@contextmanager
def source_of(root: Path, *, polling: bool) -> Iterator[tuple[FilesystemSource, FakeClock]]:
    """A source that has begun to look, on a clock that stands still."""
    (root / "out").mkdir()
    clock = FakeClock(time_of_ns((root / "out").stat().st_mtime_ns))
    options = WatchOptions(settle_s=SETTLE_S, rescan_s=3600.0, polling=polling)
    source = FilesystemSource("run", root / "out", root / "state" / "pins", options, clock)
    try:
        source.ready(clock.now())
        while not (polling or source._heard):  # file events begin a moment later
            (root / "out" / "noise").write_text("")
            time.sleep(0.01)
        yield source, clock
    finally:
        source.close()


def steps_after(source: FilesystemSource, clock: FakeClock, wait_s: float, *, written: Path) -> list[int]:
    """Steps that are taken by `wait_s` after the file was written, its event having come."""
    while str(written) not in source._heard:
        time.sleep(0.01)
    taken = source.ready(clock.now())
    passed_s = (clock.now() - time_of_ns(written.stat().st_mtime_ns)).total_seconds()
    clock.advance(max(0.0, wait_s - passed_s))
    return [checkpoint.step for checkpoint in taken + source.ready(clock.now())]


def test_a_checkpoint_with_the_trainers_last_file_is_taken_at_once(tmp_path: Path) -> None:
    with source_of(tmp_path, polling=False) as (source, clock):
        folder = save(tmp_path / "out", 10)
        assert steps_after(source, clock, PROMPT_S + 0.01, written=folder / "trainer_state.json") == [10]


def test_without_that_file_nothing_but_quiet_tells_the_end(tmp_path: Path) -> None:
    with source_of(tmp_path, polling=False) as (source, clock):
        folder = save_model(tmp_path / "out" / "checkpoint-10", seed=1)
        assert steps_after(source, clock, SETTLE_S - 1, written=folder / "tokenizer.json") == []
        clock.advance(2.0)
        assert [checkpoint.step for checkpoint in source.ready(clock.now())] == [10]


def test_who_waits_is_woken_when_the_event_comes_after_the_look(tmp_path: Path) -> None:
    with source_of(tmp_path, polling=True) as (source, clock):
        state = save(tmp_path / "out", 10) / "trainer_state.json"
        clock.advance((time_of_ns(state.stat().st_mtime_ns) - clock.now()).total_seconds())
        source.ready(clock.now())
        source._waits_until_s = time.monotonic() + SETTLE_S
        assert not source._oversleeps()
        source._hear(str(state))
        assert source._oversleeps()
