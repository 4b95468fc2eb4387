"""A whole tracker in one process that may be killed at any line: tick, review and worker on real stores.

Source, queue, history, samples and outbox are the real ones, on files below one folder; engine, evaluator, prober and
what lies behind the outbox are fakes, and now and then fail. `live` runs until everything is judged; killed, it is
called again on the same folder. What it leaves does not depend on how often that happened: `left` says what that is.
"""

import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import alembic.context  # noqa: F401 - what is loaded late elsewhere is loaded here once for all processes
import pandas as pd  # noqa: F401
from pydantic import TypeAdapter

from benchmarks.killing.inside import Bomb, arm, watch_lines
from eval_jobs.errors import EndpointFailed, StoreError, TrackerError
from eval_jobs.execute.interrupts import Interrupts, Stopped
from eval_jobs.execute.nudge import Nudged
from eval_jobs.execute.worker.claiming import ClaimFilter
from eval_jobs.execute.worker.execution_window import ExecutionWindow
from eval_jobs.execute.worker.main import Worker, work
from eval_jobs.ports import Note, ShowProgress
from eval_jobs.queue.database_sql import open_database
from eval_jobs.queue.rules import MAX_STALLED
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.queue_types import Claim
from eval_jobs.run import Tools
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, EvalRecord, EvalResult, ServeSpec, Suite
from tests import trainer
from tests.calibrating import ask_twice, flipping_answer
from tests.fakes.clock import FakeClock, WorkerClock
from tests.fakes.engine import FakeEngine
from tests.fakes.evaluator import FakeEvaluator
from tests.fakes.prober import FakeProber
from tests.small_world_around import (
    Broken,
    Channel,
    Once,
    QuickSource,
    Sink,
    agent_of,
    print_more,
    replayed,
    without_standing,
)
from tracker.adapters.alerts.outbox_sql import AlertOutbox
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.tracking.outbox_sql import OutboxTracking
from tracker.app.daemon import StopRule, watch
from tracker.app.steps.alerting import AlertDispatcher
from tracker.app.world import WatchState
from tracker.config import load_config
from tracker.domain.checkpoints.watching import WatchOptions
from tracker.domain.records.policy import Pinned
from tracker.wiring.project import Project

RUN = "run"
STEPS = (10, 20, 30, 40, 50, 60, 70, 80)
REFUSED_ONCE, LOST_ONCE, BUGGY, WORN = 30, 40, 50, 60
"""Steps at which the server fails once, another worker comes in between once, a bug shows, workers crash. 20 is one too
many, and skipped."""
LATE = ((30, 40), (40,))
"""Of each of two worlds: steps that are reviewed when the others have been, so that later ones are judged again."""
ORDERLY = "orderly"
"""A file: where it exists, nothing is late any more."""
HALF_WRITTEN, SAMPLES = 65, 30
SEEDS = {70: 132, 80: 133}
"""Of the weights, where not the step: these answer badly."""
LEASE_S = 0.4
CONFIG = f"""
[run]
name = "{RUN}"
output_dir = "out"
state_dir = "."
[watch]
max_waiting = {len(STEPS) - 1}
[suite]
max_tokens = 8
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
[probe]
requests = 4
concurrency = 2
input_tokens = 8
output_tokens = 3
warmup_requests = 1
reference = "first"
[tracking]
enabled = false
"""
SCREENED = f"""
[suite.screen]
samples = {SAMPLES - 10}
first = 3
every = 3
"""
"""In the second world."""
TIMES = (
    *("created_at", "finished_at", "raised_at", "seen_at", "last_seen_at", "resumed_at"),
    *("started_at", "timestamp_ms", "at_ms", "repetition", "pending_steps"),
)
"""Depend on when somebody was killed."""


def write(home: Path, world: int) -> None:
    """Write what a trainer left and the questions, for one of the two worlds."""
    for step in STEPS:
        trainer.save(home / "out", step, seed=SEEDS.get(step, step))
    half = home / "out" / f"checkpoint-{HALF_WRITTEN}"
    half.mkdir()
    trainer.write_json(half / "config.json", trainer.CONFIG)
    rows = [{"question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(SAMPLES)]
    (home / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (home / "tracker.toml").write_text(CONFIG + (SCREENED if world else ""))
    (home / "world").write_text(str(world))


def live(home: Path, number: int, bomb: Bomb | None) -> None:
    """Be the process number `number`: watch and work until all is judged, then write down what is left."""
    if bomb is not None:
        arm(bomb, lambda: None)
    _live(home, number)
    (home / "left.json").write_text(json.dumps(left(home), sort_keys=True))


def live_and_count(home: Path) -> None:
    """Live undisturbed, and write down how often each line of ours ran, and what is left."""
    counts: Counter[str] = Counter()
    watch_lines(lambda place: counts.update((place,)))
    _live(home, 0)
    (home / "counts.json").write_text(json.dumps(counts))
    (home / "left.json").write_text(json.dumps(left(home), sort_keys=True))


def left(home: Path) -> dict[str, Any]:
    """Return everything that must be the same after any number of kills."""
    engine = open_database(f"sqlite:///{home}/tracker.db")
    history = SqlHistory(engine, home / "samples")
    records = [history.record(record.plan.id) for record in history.records(RUN)]
    found: dict[str, Any] = {
        "records": sorted(_timeless(record, home) for record in records),
        "reports": sorted(_timeless(report, home) for report in history.reports(RUN)),
        "incidents": sorted(_timeless(incident, home) for incident in history.incidents(RUN)),
        "calibrations": sorted(_timeless(calibration, home) for calibration in history.calibrations()),
        "gaps": sorted(_timeless(gap, home) for gap in history.gaps(RUN)),
        "alerts": sorted(_timeless(without_standing(alert), home) for alert in history.open_alerts(RUN)),
        "queue": {name: n for name, n in SqlQueue(engine).state().counts.items() if n},
        **_sent(home),
        "pins": sorted(path.name for path in home.glob("pins/*/*")),
        "files": sorted(str(path.relative_to(home)) for path in home.glob("samples/**/*") if path.is_file()),
        "answers": sorted(path.name for path in (home / "answers").iterdir()),
        "training": sorted(_timeless(incident, home) for incident in history.training_incidents(RUN)),
        "log": replayed(history.events(), history.reports(RUN), history.open_alerts(RUN)),
        "points": [(point.key, point.step, point.value) for point in history.logged_points(RUN)[1]],
    }
    engine.dispose()
    return found


def _sent(home: Path) -> dict[str, Any]:
    """Return what the store holds. Aliases move as results come: where they end counts, and not on which way.

    The same holds for the incidents of the training, and for how many points of a log travel together.
    """
    paths = sorted((home / "sent").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    items = [json.loads(path.read_text()) for path in paths]
    named = [{c["alias"]: c["checkpoint"]["step"] for c in item["champions"]} for item in items if "champions" in item]
    logged = [item for item in items if "at_ms" in item]
    return {
        "sent": sorted({_timeless(item, home) for item in items if "champions" not in item and "at_ms" not in item}),
        "aliases": named[-1:],
        "sent points": sorted((p["key"], p["step"], p["value"]) for item in logged for p in item.get("points", ())),
        "sent incidents": {item["kind"]: item["incidents"] for item in logged if "incidents" in item},
    }


def told(home: Path) -> Counter[str]:
    """Return how often each alert was told: the newest of a cause that the channel had not got before.

    Of an incident of the training that is over, its end says it all: a channel that was behind gets nothing else.
    """
    counts = Counter((home / "told").read_text().splitlines())
    for line in [*counts]:
        if line.startswith("resolved training"):
            del counts[line.replace("resolved", "firing", 1)]
    return counts


# --- private


def _live(home: Path, number: int) -> None:
    _prepare(home)
    clock = WorkerClock(datetime.now(UTC) + timedelta(hours=number + 1))
    database = open_database(f"sqlite:///{home}/tracker.db")
    once = Once(home / "failed")
    queue = _FlakyQueue(database, once)
    queue.late = () if (home / ORDERLY).exists() else LATE[int((home / "world").read_text())]
    source = _source(home, queue, clock)
    world = Project(load_config(home / "tracker.toml")).world()
    alerting = AlertOutbox(database, (Broken(), Channel(home / "told")), clock, run=RUN)
    dispatcher = AlertDispatcher(alerts=world.history, records=world.history, alerting=alerting)
    tracking = OutboxTracking(database, Sink(home / "sent", once), clock)
    world = replace(world, source=source, queue=queue, tracking=tracking, dispatcher=dispatcher)
    tools = _tools(_Evaluator(queue, home / "answers", once, clock), clock)
    agent = agent_of(home, database, clock)

    def keep_workers() -> None:
        print_more(home)
        agent.follow()
        clock.interrupts = Interrupts()
        clock.interrupts.install()
        ask_twice(queue, world.history, RUN, clock.now())
        with suppress(Stopped):
            worker = Worker(
                name=f"w{number}",
                queue=queue,
                tools=tools,
                interrupts=clock.interrupts,
                claim_filter=ClaimFilter(window=ExecutionWindow(clock)),
                lease_s=LEASE_S,
            )
            work(replace(worker, nudged=_Nudged(clock)))

    for pinned in (Pinned(run_id="another", step=10), None):
        # First compared with a baseline that has no results; the second time, what failed is tried again.
        policy = replace(world.policy, pinned=pinned)
        watching = replace(world, policy=policy)
        rule = StopRule(training_ended=lambda: True, quiet_s=2.0)
        watch(watching, WatchState(), clock=clock, keep_workers=keep_workers, stop=rule, show=lambda *_: None)
    while world.tracking.flush():
        clock.advance(400.0)
    for part in (alerting, source, agent):
        part.close()


def _tools(evaluator: FakeEvaluator, clock: WorkerClock) -> Tools:
    return Tools(engine=_Engine(_endpoint("")), evaluator=evaluator, prober=FakeProber(), clock=clock)


def _prepare(home: Path) -> None:
    logging.disable(logging.CRITICAL)  # of hundreds of processes
    for name in ("sent", "answers", "failed"):
        (home / name).mkdir(exist_ok=True)


class _Nudged(Nudged):
    """Nobody is at the other end of a pipe."""

    def __init__(self, clock: FakeClock) -> None:
        self.nap = clock.sleep  # type: ignore[method-assign]

    def report(self) -> None:
        """The watcher looks for itself."""


def _source(home: Path, queue: SqlQueue, clock: FakeClock) -> QuickSource:
    options = WatchOptions(settle_s=0.0, rescan_s=0.01, polling=True)
    source = QuickSource(RUN, home / "out", home / "pins", options, clock)
    source.pass_time = clock.advance
    source.before_the_end = lambda: setattr(queue, "is_ending", True)
    return source


class _FlakyQueue(SqlQueue):
    """Refuses each kind of request once, takes a plan away from its worker, and lets one wear its workers out.

    Records are handed out when all plans are finished, of `late` steps last: their order is then the same every time.
    """

    def __init__(self, database: Any, once: Once) -> None:
        super().__init__(database)
        self._once = once
        self.takes_away = False
        self.is_ending = False
        self.late: tuple[int, ...] = ()

    def claim(self, **arguments: Any) -> Claim | None:
        self._refuse_once("claim")
        claim = super().claim(**arguments)
        is_worn = claim is not None and claim.plan.checkpoint.step == WORN
        return replace(claim, stalled=MAX_STALLED) if claim is not None and is_worn else claim

    def extend(self, *arguments: Any, **options: Any) -> bool:
        if not self.takes_away:
            return super().extend(*arguments, **options)
        self._refuse_once("extend")
        return False

    def done(self, *arguments: Any) -> frozenset[str]:
        self._refuse_once("done")
        return super().done(*arguments)

    def finish(self, *arguments: Any, **options: Any) -> bool:
        self._refuse_once("finish")
        return not self._once("finished by another") and super().finish(*arguments, **options)

    def release(self, *arguments: Any, **options: Any) -> None:
        self._refuse_once("release")
        super().release(*arguments, **options)

    def finished(self) -> tuple[EvalRecord, ...]:
        self._refuse_once("finished in the end" if self.is_ending else "finished")
        state = self.state()
        records = () if state.waiting or state.running else super().finished()
        return tuple(record for record in records if record.plan.checkpoint.step not in self.late) or records

    def _refuse_once(self, what: str) -> None:
        if self._once(what):
            raise StoreError(f"the database refuses: {what}", hint="wait")


class _Engine(FakeEngine):
    @contextmanager
    def serving(self, checkpoint: Checkpoint, spec: ServeSpec, *, progress: Note) -> Iterator[Endpoint]:
        """Name the endpoint after the weights."""
        with super().serving(checkpoint, spec, progress=progress) as endpoint:
            yield replace(endpoint, model=f"{checkpoint.step}-{checkpoint.digest}")


class _Evaluator(FakeEvaluator):
    """Fails as the steps' names say; keeps a file for every plan until it is told to forget it."""

    def __init__(self, queue: _FlakyQueue, folder: Path, once: Once, clock: WorkerClock) -> None:
        super().__init__(str)
        self._queue = queue
        self._clock = clock
        self._folder = folder
        self._once = once

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        (self._folder / plan_id).touch()
        step, _, digest = endpoint.model.partition("-")
        if int(step) == BUGGY:
            raise RuntimeError("a bug")
        if self._once("stopped"):
            self._clock.interrupts.stop()
        if int(step) == REFUSED_ONCE and self._once(step):
            return (EndpointFailed("the server is away", hint="wait"),) * len(suite.benchmarks)
        if int(step) == LOST_ONCE and self._once(step):
            self._wait_until_lost()
        self.answer = lambda question: flipping_answer(question, digest, suite)
        return super().evaluate(suite, endpoint, plan_id=plan_id, progress=progress)

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Nothing takes long here."""

    def kept(self) -> tuple[str, ...]:
        return tuple(path.name for path in self._folder.iterdir())

    def forget(self, plan_id: str) -> None:
        (self._folder / plan_id).unlink(missing_ok=True)
        super().forget(plan_id)

    def _wait_until_lost(self) -> None:
        self._queue.takes_away = True
        try:
            while True:  # until the next beat of the heart finds out
                threading.Event().wait(0.01)
        finally:
            self._queue.takes_away = False


def _endpoint(model: str) -> Endpoint:
    info = EngineInfo(name="fake", version="1", load_method="cold", load_s=0.0, log="")
    return Endpoint(base_url="http://127.0.0.1:9/v1", model=model, api_key_env="", info=info)


def _timeless(value: Any, home: Path) -> str:
    plain = value if isinstance(value, dict) else json.loads(_adapter(value.__class__).dump_json(value))
    text = json.dumps(_without_times(plain), sort_keys=True).replace(str(home), "HOME")
    return re.sub(r"worker-\d+\.log", "worker-PID.log", text)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(inner) for key, inner in value.items() if key not in TIMES}
    return [*map(_without_times, value)] if isinstance(value, list) else value
