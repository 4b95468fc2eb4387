"""A training of two ranks whose processes a test starts, hangs and ends, with the watch that follows them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fakes.clock import FakeClock
from tests.fakes.processes import FakeProcesses
from tracker.app.health.job_watch import JobWatch, Surroundings
from tracker.config.health import load_rules
from tracker.domain.health.logs.streams import Stream
from tracker.domain.health.logs.text import RawLine
from tracker.domain.health.processes.jobs import Places
from tracker.domain.health.processes.pace import HangLimits
from tracker.domain.health.processes.seen import ProcessId, ProcessState, Sample, SeenProcess, StackFrame
from tracker.domain.health.processes.signs import ProcessSign
from tracker.domain.health.run_log import RunLog
from tracker.domain.health.run_state import RunState, StreamState
from tracker.domain.health.stored import progress_of
from tracker.domain.records.training import TrainingIncident

WAITS = Sample(
    state=ProcessState.SLEEPING,
    moved_bytes=0,
    stack=(StackFrame(function="all_reduce", file="torch/distributed/distributed_c10d.py"),),
)
SLEEPS = Sample(
    state=ProcessState.SLEEPING, moved_bytes=0, stack=(StackFrame(function="load", file="/app/data.py", line=5),)
)


@dataclass
class World:
    """A training of two ranks, its watch, and a clock that both use."""

    clock: FakeClock = field(default_factory=FakeClock)
    processes: FakeProcesses = field(default_factory=FakeProcesses)
    log: RunLog = field(default_factory=lambda: RunLog(rules=load_rules().lines, state=RunState(run_id="sft")))
    exit_code: int | None = None
    world_size: int = 2
    stream: StreamState = field(default_factory=StreamState)
    lines: int = 0
    saved: int = 0
    signs: list[ProcessSign] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = self.watching()
        self.ranks = [self.start(11, 0), self.start(12, 1)]

    def watching(self, host: str = "boot") -> JobWatch:
        places = Places(run="sft", folder="/data/sft", machine="node3", host=host)
        return JobWatch(
            processes=self.processes,
            places=places,
            limits=HangLimits(),
            clock=self.clock,
            around=Surroundings(exit_code=lambda _began_s, _seen_s: self.exit_code, gpu_table=lambda: "GPU 0 busy"),
        )

    def start(self, pid: int, rank: int) -> ProcessId:
        return self.processes.start(
            SeenProcess(
                id=ProcessId(pid=pid, created_s=float(pid)),
                parent=1,
                name="python",
                arguments=("python", "train.py", "/data/sft"),
                variables={"RANK": str(rank), "WORLD_SIZE": str(self.world_size)},
            )
        )

    def print(self, text: str) -> None:
        self.lines += 1
        stream = Stream(name="train.log", read_at=self.clock.now())
        self.log.take(RawLine(number=self.lines, text=text), stream, self.stream)
        self.log.end_piece(stream, self.stream)

    def run(self, seconds: float, *, meanwhile: Callable[[int], None] = lambda _: None) -> list[ProcessSign]:
        """Let time pass, one pass a second; return what was reported."""
        reported: list[ProcessSign] = []
        for second in range(int(seconds)):
            meanwhile(second)
            for sign in self.watch.signs(self.log, self.saved):
                self.log.trouble.take_sign(sign, self.clock.now())
                reported.append(sign)
            self.clock.advance(1.0)
        return reported

    def train(self, steps: int, *, first: int = 1, every_s: int = 8) -> None:
        for step in range(first, first + steps):
            assert self.run(every_s) == []
            self.print(f"step {step}/1000 | loss 2.5")

    def hang(self) -> None:
        self.processes.doing = {self.ranks[0]: WAITS, self.ranks[1]: SLEEPS}

    def end(self, *ranks: int) -> None:
        for rank in ranks:
            self.processes.end(self.ranks[rank], self.clock.now().timestamp() + rank)

    @property
    def state(self) -> str:
        return progress_of("sft", self.log.state, self.clock.now()).state

    @property
    def incident(self) -> TrainingIncident:
        (found,) = self.log.incidents()
        return found
