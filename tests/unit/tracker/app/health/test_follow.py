"""How much one pass over the logs reads, of which moment it is, and when it is saved."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.fakes.clock import FakeClock
from tests.fakes.health import FakeHealth
from tests.fakes.training_log import FakeTrainingLog
from tracker.app.health.follow import MOST_UNSAVED, PASS_CHARS, LogFollower, Reading, cursors_of
from tracker.config.health import load_rules
from tracker.domain.health.logs.cursor import Cursor, LogPiece
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine

LONG = 3000
A_READING = 100


@dataclass
class Backlog(FakeTrainingLog):
    """A log with more than a pass can read, of long lines; each reading takes a second."""

    clock: FakeClock
    waiting: int
    read_at: list[str] = field(default_factory=list)

    def read(self) -> Iterator[LogPiece]:
        self.clock.advance(1.0)
        lines = tuple(
            RawLine(number=number, text=f"step {number} | loss: 2.5".ljust(LONG))
            for number in range(self.waiting, self.waiting - min(A_READING, self.waiting), -1)
        )
        self.waiting -= len(lines)
        if lines:
            stream = Stream(name="train.log", read_at=self.clock.now())
            yield LogPiece(path="train.log", run_id="run", stream=stream, cursor=Cursor(inode=1), lines=lines)

    def recent_logs(self) -> frozenset[str]:
        return frozenset()


def follower(waiting: int) -> tuple[LogFollower, Backlog]:
    clock, health = FakeClock(), FakeHealth()
    log = Backlog(clock=clock, waiting=waiting)
    return LogFollower(log=log, store=health, reading=Reading(rules=()), clock=clock, known=health.read_so_far()), log


def test_a_pass_reads_so_much_text_however_long_the_lines_are() -> None:
    agent, log = follower(waiting=5000)
    agent.follow()
    read = 5000 - log.waiting
    assert PASS_CHARS <= read * LONG < PASS_CHARS + A_READING * LONG
    while agent.follow():
        pass
    assert log.waiting == 0


def test_what_a_pass_reads_is_of_one_moment_and_no_pause_of_the_training() -> None:
    agent, _ = follower(waiting=500)
    agent.follow()
    assert agent.runs["run"].state.pace.intervals_s == ()


@dataclass
class Growing:
    """A log that grows, and agents that follow it one after the other and save every three seconds."""

    clock: FakeClock = field(default_factory=FakeClock)
    health: FakeHealth = field(default_factory=FakeHealth)
    logs: dict[str, bytes] = field(default_factory=lambda: {"train.log": b""})
    step: int = 0

    def __post_init__(self) -> None:
        self.start()
        self.passes("")

    def start(self) -> None:
        known = self.health.read_so_far()
        log = FakeTrainingLog(self.logs, self.clock, dict(cursors_of(known)), is_first=not known.runs)
        reading = Reading(rules=load_rules().lines, save_every_s=3.0)
        self.agent = LogFollower(log=log, store=self.health, reading=reading, clock=self.clock, known=known)

    def passes(self, *lines: str) -> list[int]:
        """Return how many points are saved after each pass; each reads one line, or a step if there is none."""
        saved = []
        for line in lines:
            self.step += 1
            self.logs["train.log"] += (line or f"step {self.step} | loss: 2.5\n").encode()
            self.clock.advance(1.0)
            self.agent.follow()
            saved.append(len(self.points()))
        return saved

    def points(self) -> list[int]:
        return [point.step for point in self.health.logged_points("run")[1] if point.key == "train/loss"]


def test_points_are_saved_every_three_seconds_and_those_of_an_agent_that_is_killed_are_read_again() -> None:
    log = Growing()
    assert log.passes("", "", "", "", "") == [1, 1, 4, 4, 4]
    log.start()
    assert log.passes("", "") == [7, 7]
    assert log.points() == [1, 2, 3, 4, 5, 6, 7]


def test_points_are_saved_when_an_agent_is_stopped() -> None:
    log = Growing()
    assert log.passes("") == [1]
    log.agent.close()
    assert log.points() == [1, 2]
    log.start()
    assert log.passes("") == [3]


def test_an_incident_is_saved_at_once_with_the_points_before_it() -> None:
    log = Growing()
    assert log.passes("", "RuntimeError: CUDA error: device-side assert triggered\n") == [1, 2]
    assert [one.cause.step for one in log.health.training_incidents("run")] == [2]


def test_many_points_are_saved_at_once() -> None:
    log = Growing()
    block = "".join(f"step {step} | loss: 2.5 | lr: 1e-4\n" for step in range(10, 10 + MOST_UNSAVED))
    assert log.passes("", block) == [1, 1 + MOST_UNSAVED + 1]
