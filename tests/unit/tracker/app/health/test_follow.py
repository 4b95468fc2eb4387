"""How much one pass over the logs reads, and of which moment it is."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.fakes.clock import FakeClock
from tests.fakes.health import FakeHealth
from tests.fakes.training_log import FakeTrainingLog
from tracker.app.health.follow import PASS_CHARS, LogFollower, Reading
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
