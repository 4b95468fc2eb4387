"""The rules of `tracker.ports.CheckpointSource`, for the fake, for the file system and for buckets."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pytest

from eval_jobs.types import Checkpoint
from tests import trainer
from tests.buckets import Uploads, open_source, s3_server
from tests.fakes.clock import FakeClock
from tests.fakes.source import FakeSource
from tests.records import checkpoint_of
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.domain.checkpoints.watching import WatchOptions
from tracker.domain.records.types import Gap
from tracker.ports import CheckpointSource

LONG = timedelta(seconds=60)


class Run(Protocol):
    """A training run that a source watches."""

    source: CheckpointSource
    now: datetime

    def save(self, step: int, *, seed: int) -> None:
        """The trainer finishes a checkpoint."""

    def save_half(self, step: int) -> None:
        """The trainer begins a checkpoint and is killed."""

    def delete(self, step: int) -> None:
        """Rotation deletes a checkpoint."""

    def restart(self) -> None:
        """The tracker is started again."""


class InMemory:
    """A run whose source is told what happened."""

    def __init__(self, tmp_path: Path) -> None:
        self._checkpoints: list[Checkpoint] = []
        self._folder = tmp_path
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.source = FakeSource()

    def save(self, step: int, *, seed: int) -> None:
        pin = self._folder / f"{step}-{seed}"
        pin.mkdir(exist_ok=True)
        checkpoint = replace(checkpoint_of("run", step), uri=str(pin), digest=f"{step}-{seed}", ready_at=self.now)
        self._checkpoints.append(checkpoint)
        self.source.put(checkpoint)

    def save_half(self, step: int) -> None:
        self.source.put_gap(
            Gap(
                run_id="run",
                step=step,
                source_uri=f"/out/checkpoint-{step}",
                code="E-CKPT-INCOMPLETE",
                message=f"/out/checkpoint-{step} has no weights",
                hint="save it again",
                seen_at=self.now,
            )
        )

    def delete(self, step: int) -> None:
        """Its pin stays."""

    def restart(self) -> None:
        self.source = FakeSource(*self._checkpoints)


class OnDisk:
    """A run whose trainer writes real files."""

    def __init__(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        self._clock = FakeClock(datetime.now(UTC))  # noqa: DTZ005, RUF100 - file times are real
        self.source = self._open()

    @property
    def now(self) -> datetime:
        return self._clock.now()

    @now.setter
    def now(self, value: datetime) -> None:
        self._clock.advance((value - self._clock.now()).total_seconds())

    def save(self, step: int, *, seed: int) -> None:
        trainer.save(self._folder / "out", step, seed=seed)

    def save_half(self, step: int) -> None:
        (trainer.save(self._folder / "out", step) / "trainer_state.json").unlink()

    def delete(self, step: int) -> None:
        shutil.rmtree(self._folder / "out" / f"checkpoint-{step}")

    def restart(self) -> None:
        self.source.close()
        self.source = self._open()

    def _open(self) -> FilesystemSource:
        return FilesystemSource(
            "run", self._folder / "out", self._folder / "pins", WatchOptions(polling=True), self._clock
        )


class InBucket:
    """A run whose trainer uploads its files to a real S3 server."""

    def __init__(self, tmp_path: Path, endpoint: str) -> None:
        self._folder = tmp_path
        self._uploads = Uploads(endpoint)
        self._clock = FakeClock(datetime.now(UTC))
        self.source: CheckpointSource = open_source(self._uploads, tmp_path / "pins", self._clock)

    @property
    def now(self) -> datetime:
        return self._clock.now()

    @now.setter
    def now(self, value: datetime) -> None:
        self._clock.advance((value - self._clock.now()).total_seconds())

    def save(self, step: int, *, seed: int) -> None:
        self._uploads.folder(trainer.save(self._folder / "out", step, seed=seed))

    def save_half(self, step: int) -> None:
        folder = trainer.save(self._folder / "out", step)
        (folder / "trainer_state.json").unlink()
        self._uploads.folder(folder)

    def delete(self, step: int) -> None:
        self._uploads.delete(f"checkpoint-{step}/")

    def restart(self) -> None:
        self.source.close()
        self.source = open_source(self._uploads, self._folder / "pins", self._clock)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(params=[InMemory, OnDisk, InBucket])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    needs = (request.getfixturevalue("endpoint"),) if request.param is InBucket else ()
    world: Run = request.param(tmp_path, *needs)
    yield world
    world.source.close()


def found(run: Run) -> list[Checkpoint]:
    """Look until nothing more can come of what is on disk."""
    checkpoints: list[Checkpoint] = []
    for _ in range(3):
        checkpoints += run.source.ready(run.now)
        run.now += LONG
    return checkpoints


def steps(run: Run) -> list[int]:
    return [c.step for c in found(run)]


def test_nothing_is_ready_before_the_trainer_saved(run: Run) -> None:
    assert found(run) == []
    assert run.source.gaps() == ()


def test_checkpoints_come_lowest_step_first(run: Run) -> None:
    for step in (30, 10, 20):
        run.save(step, seed=1)
    assert steps(run) == [10, 20, 30]


def test_a_checkpoint_is_returned_once(run: Run) -> None:
    run.save(10, seed=1)
    assert steps(run) == [10]
    run.save(10, seed=1)
    assert steps(run) == []


def test_the_same_step_with_other_content_is_another_checkpoint(run: Run) -> None:
    run.save(10, seed=1)
    (first,) = found(run)
    run.save(10, seed=2)
    (second,) = found(run)
    assert second.step == first.step
    assert second.digest != first.digest
    assert second.uri != first.uri


def test_a_pin_outlives_the_trainers_folder(run: Run) -> None:
    run.save(10, seed=1)
    (checkpoint,) = found(run)
    run.delete(10)
    assert found(run) == []
    assert Path(checkpoint.uri).is_dir()
    assert run.source.gaps() == ()


def test_after_a_restart_everything_pinned_is_returned_again(run: Run) -> None:
    run.save(10, seed=1)
    run.save(20, seed=1)
    before = found(run)
    run.delete(10)
    run.restart()
    assert found(run) == before
    assert found(run) == []


def test_both_contents_of_a_rewound_step_survive_a_restart(run: Run) -> None:
    run.save(10, seed=1)
    before = found(run)
    run.save(10, seed=2)
    before += found(run)
    run.restart()
    assert {replace(c) for c in found(run)} == set(before)


def test_what_cannot_be_evaluated_is_a_gap_and_never_a_checkpoint(run: Run) -> None:
    run.save_half(10)
    run.save(20, seed=1)
    assert steps(run) == [20]
    (gap,) = run.source.gaps()
    assert (gap.run_id, gap.step, gap.code) == ("run", 10, "E-CKPT-INCOMPLETE")
    assert gap.message
    assert gap.hint


def test_a_source_that_has_told_everything_is_not_behind(run: Run) -> None:
    run.save(10, seed=1)
    assert steps(run) == [10]
    assert not run.source.is_behind()


@pytest.mark.parametrize("act", [lambda r: r.source.wait(0.0), lambda r: r.source.close()])
def test_waiting_and_closing_twice_are_harmless(run: Run, act: Callable[[Run], None]) -> None:
    act(run)
    act(run)


def test_a_source_that_was_interrupted_while_it_started_can_be_closed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name.endswith("-watch"):
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with suppress(KeyboardInterrupt):  # the fake has no thread
        steps(run)
    run.source.close()
