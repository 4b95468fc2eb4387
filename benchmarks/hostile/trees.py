"""Random folder trees with sound checkpoints among what a hostile neighbour put there: all sound ones are evaluated.

    python -m benchmarks.hostile.trees --seed 1 --count 200
    python -m benchmarks.hostile.trees --seed 17 --count 1 --verbose      # tree 17 again

Source, queue, history and samples are the real ones, in a process whose memory is limited; the engine and the
evaluator are stand-ins. Each tree is watched twice, as by a tracker that is started again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.hostile.damage import FOLDER_NAMES, INSIDE, beside, harmless
from eval_jobs.execute.interrupts import Interrupts, Stopped
from eval_jobs.execute.worker.claiming import ClaimFilter
from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.execute.worker.main import Worker, work
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.run import Tools
from eval_jobs.types import Endpoint, EngineInfo
from tests import trainer
from tests.fakes.clock import FakeClock, WorkerClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.app.daemon import StopRule, watch
from tracker.app.world import WatchState
from tracker.config import load_config
from tracker.domain.checkpoints.watching import WatchOptions
from tracker.wiring.project import Project

SOUND = (10, 20, 30, 40, 50, 60)
MEMORY_BYTES = 1 << 30
STALL_S = 60
BATCH = 25
"""Trees that one process watches."""
PASSES = 400
PROCESSES = 2
IN_MEMORY = "/dev/shm"  # noqa: S108 - thousands of files, and times that other file systems cut
MODULE = "benchmarks.hostile.trees"
CONFIG = """
[run]
name = "run"
output_dir = "out"
state_dir = "."
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[tracking]
enabled = false
"""


@dataclass(frozen=True, kw_only=True)
class TreesResult:
    """What came out of some trees."""

    trees: int = 0
    lost: int = 0
    """Sound checkpoints without an evaluation of their weights."""
    exits: int = 0
    """Watchers that ended with an error, by the clock or for lack of memory."""
    tracebacks: int = 0
    """Records with a traceback in the log that users see."""
    peak_bytes: int = 0
    """Largest memory of a process, in bytes."""

    def plus(self, other: TreesResult) -> TreesResult:
        """Return both together."""
        return TreesResult(
            trees=self.trees + other.trees,
            lost=self.lost + other.lost,
            exits=self.exits + other.exits,
            tracebacks=self.tracebacks + other.tracebacks,
            peak_bytes=max(self.peak_bytes, other.peak_bytes),
        )


def measure(seed: int, count: int, *, verbose: bool = False) -> TreesResult:
    """Watch the trees of the seeds from `seed` on, in two processes at once that end after some trees."""
    batches = [range(first, min(first + BATCH, seed + count)) for first in range(seed, seed + count, BATCH)]
    total = TreesResult()
    with ThreadPoolExecutor(PROCESSES) as pool:
        for result in pool.map(partial(_batch, verbose=verbose), batches):
            total = total.plus(result)
    return total


def write_tree(home: Path, chance: random.Random) -> Mapping[int, str]:
    """Write what is there before the watcher starts; return the digest of each sound checkpoint."""
    out = home / "out"
    digests = {}
    for step in SOUND[:3]:
        digests[step] = _sound(out, step, chance)
    for _ in range(chance.randint(2, 8)):
        _hostile(out, chance)
    if chance.random() < 0.5:
        beside(out, chance)
    return digests


def add_to_tree(home: Path, chance: random.Random) -> Mapping[int, str]:
    """Write what comes while it watches."""
    for _ in range(chance.randint(1, 5)):
        _hostile(home / "out", chance)
    return {step: _sound(home / "out", step, chance) for step in SOUND[3:]}


def watch_tree(home: Path, hours: int) -> None:
    """Watch until nothing is left to do."""
    clock = WorkerClock(datetime.now(UTC) + timedelta(hours=hours))
    source = _Source("run", home / "out", home / "pins", WatchOptions(settle_s=0.0, rescan_s=0.01, polling=True), clock)
    source.clock = clock
    world = replace(Project(load_config(home / "tracker.toml")).world(), source=source)
    queue = SqlQueue(open_database(f"sqlite:///{home}/tracker.db"))
    info = EngineInfo(name="stand-in", version="1", load_method="cold", load_s=0.0, log="")
    endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", model="m", api_key_env="", info=info)
    tools = Tools(engine=FakeEngine(endpoint), evaluator=FakeEvaluator(str), prober=FakeProber(), clock=clock)

    def keep_workers() -> None:
        clock.interrupts = Interrupts()
        worker = Worker(
            name="worker",
            queue=queue,
            tools=tools,
            interrupts=clock.interrupts,
            claim_filter=ClaimFilter(window=ExecutionWindow(clock)),
        )
        with suppress(Stopped):
            work(worker)

    rule = StopRule(training_ended=lambda: True, quiet_s=2.0)
    try:
        watch(world, WatchState(), clock=clock, keep_workers=keep_workers, stop=rule, show=lambda *_: None)
    finally:
        world.dispatcher.alerting.close()
        source.close()


def evaluated(home: Path) -> dict[int, set[str]]:
    """Return the digests of the weights that were evaluated, by step."""
    found: dict[int, set[str]] = {}
    for record in Project(load_config(home / "tracker.toml")).world().history.records("run"):
        if record.results:
            found.setdefault(record.plan.checkpoint.step, set()).add(record.plan.checkpoint.digest)
    return found


# --- private


def _batch(seeds: range, *, verbose: bool) -> TreesResult:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as place:
        options = ["--seed", str(seeds[0]), "--count", str(len(seeds)), "--in", place, *["--verbose"] * verbose]
        command = [sys.executable, "-m", MODULE, *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    if results and not done.returncode:
        return TreesResult(**results[-1])
    sys.stderr.write(f"the process of seeds {seeds[0]} to {seeds[-1]} ended with {done.returncode}\n")
    return TreesResult(trees=len(seeds), exits=1)


def _sound(out: Path, step: int, chance: random.Random) -> str:
    folder = trainer.save(out, step)
    if chance.random() < 0.3:
        harmless(folder, chance)
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def _hostile(out: Path, chance: random.Random) -> None:
    name = chance.choice((*FOLDER_NAMES, *(f"checkpoint-{chance.choice((5, 15, 25, 35, 45))}" for _ in range(20))))
    parent = chance.choice((out, out, out / "sub", out / "checkpoint-10 copy"))
    folder = parent / name
    shutil.rmtree(folder, ignore_errors=True)  # an earlier one may hold links, which nothing may be written through
    with suppress(OSError):
        trainer.save_model(folder, seed=chance.randrange(1000))
        trainer.write_json(folder / "trainer_state.json", trainer.trainer_state(15))
        for damage in chance.sample(list(INSIDE), chance.randint(1, 4)):
            damage(folder, chance)


class _Endless(Exception):
    """The watcher does not come to an end."""


class _Source(FilesystemSource):
    clock: FakeClock
    passes = 0

    def wait(self, timeout_s: float) -> None:
        """Let the clock run instead."""
        self.passes += 1
        if self.passes > PASSES:
            raise _Endless("it still watches")
        self.clock.advance(timeout_s)


class _Counting(logging.Handler):
    """Keeps the tracebacks that users would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message with a traceback."""
        if record.levelno >= logging.WARNING and record.exc_info:
            self.tracebacks.append(logging.Formatter().format(record))


def _watch_in_here(arguments: argparse.Namespace) -> TreesResult:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    counting, result = _Counting(), TreesResult()
    logging.basicConfig(level=logging.WARNING, handlers=[counting])
    if arguments.verbose:
        logging.getLogger().addHandler(logging.StreamHandler())
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        home = arguments.place / str(seed)
        lost, exits = _outcome(home, random.Random(seed))  # noqa: S311 - a game of chance
        count = len(counting.tracebacks)
        if lost or exits or count:
            sys.stderr.write(f"seed {seed}: lost {lost}, exits {exits}, tracebacks {count}\n")
            sys.stderr.writelines(f"{text}\n" for text in counting.tracebacks)
        result = result.plus(TreesResult(trees=1, lost=len(lost), exits=exits, tracebacks=count))
        counting.tracebacks.clear()
        shutil.rmtree(home, ignore_errors=True)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return replace(result, peak_bytes=peak_bytes)


def _outcome(home: Path, chance: random.Random) -> tuple[list[int], int]:
    (home / "out").mkdir(parents=True)
    (home / "tracker.toml").write_text(CONFIG)
    (home / "sums.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    exits = 0
    digests: dict[int, str] = {}
    for hours, write in enumerate((write_tree, add_to_tree)):
        digests |= write(home, chance)
        signal.alarm(STALL_S)
        try:
            watch_tree(home, hours)
        except (Exception, _Stall):  # what a user would see as an exit
            logging.getLogger().exception("the watcher ended")
            exits += 1
        finally:
            signal.alarm(0)
    found = evaluated(home)
    return [step for step, digest in digests.items() if digest not in found.get(step, ())], exits


class _Stall(BaseException):
    """A pass takes longer than anything may."""


def _stop(_: int, __: object) -> None:
    raise _Stall


def main() -> None:
    """Watch trees and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--in", dest="place", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.place is None:
        result = measure(arguments.seed, arguments.count, verbose=arguments.verbose)
    else:
        signal.signal(signal.SIGALRM, _stop)
        result = _watch_in_here(arguments)
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


if __name__ == "__main__":
    main()
