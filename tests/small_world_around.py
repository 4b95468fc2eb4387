"""What lies around the small world of `tests.small_world`: a tracking store and channels that fail once, or always."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Engine

from eval_jobs.errors import ChannelUnreachable, StoreError, TrackingUnreachable
from eval_jobs.identity import content_hash
from eval_jobs.types import Checkpoint
from tests.fakes.clock import FakeClock
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.app.health.follow import LogFollower
from tracker.app.health.settings import AgentSettings
from tracker.config.health import load_rules
from tracker.domain.log.events import CHARS, EventKind, RunEvent
from tracker.domain.records.alerts import Alert, AlertMessage, SubjectKind, alert_subject_text
from tracker.domain.records.display import one_line, shortened
from tracker.domain.records.tracking import TrackingItem
from tracker.domain.records.types import Report
from tracker.wiring.agent import follower_of

_ITEM: TypeAdapter[TrackingItem] = TypeAdapter(TrackingItem)


@dataclass(frozen=True)
class Once:
    """Remembers over kills what has failed already."""

    folder: Path

    def __call__(self, what: str) -> bool:
        """Return True the first time that it is asked for `what`."""
        path = self.folder / what
        is_first = not path.exists()
        path.touch()
        return is_first


class Sink:
    """Keeps one file for each item, as an idempotent store does; away once, and refuses one item once."""

    def __init__(self, folder: Path, once: Once) -> None:
        self._folder = folder
        self._once = once

    def send(self, item: TrackingItem) -> None:
        if self._once("answer"):
            raise TrackingUnreachable("the store does not answer", hint="start it")
        if self._once("take"):
            raise StoreError("the store refuses", hint="look at its log")
        text = _ITEM.dump_json(item).decode()
        draft = self._folder.parent / "draft"
        draft.write_text(text)
        draft.rename(self._folder / content_hash(text))

    def follow(self) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Keep nothing open."""


class Channel:
    """Writes a line for each alert that it is told."""

    name = "file"
    repeat_s = None

    def __init__(self, path: Path) -> None:
        self._path = path

    def notify(self, message: AlertMessage) -> str:
        with self._path.open("a") as file:
            file.writelines(f"{a.state} {alert_subject_text(a.subject)} {a.step}\n" for a in message.alerts)
        return "written"


class Broken:
    """A channel whose service is away."""

    name = "broken"
    repeat_s = None

    def notify(self, message: AlertMessage) -> str:
        raise ChannelUnreachable(f"{message.step} cannot be delivered", hint="look at the channel")


LOG = "".join(
    (
        *(f"step {step} | loss: {3 - step / 100}\n" for step in (10, 20, 30)),
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n",
        "Killing subprocess 77\n",
        *(f"step {step} | loss: {3 - step / 100}\n" for step in (20, 40, 50, 60)),
        "OSError: [Errno 28] No space left on device\n",
    )
)
"""What the trainer prints, bit by bit."""
GROWTH = 40
"""Bytes of it before each pass of the agent."""


class QuickSource(FilesystemSource):
    """Waits for nothing."""

    before_the_end: Callable[[], None]
    pass_time: Callable[[float], None]

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return at once what a loaded machine publishes in several calls: which step is one too many depends on it."""
        found = [*super().ready(now)]
        while self.is_behind():
            threading.Event().wait(0.01)
            found += super().ready(now)
        return tuple(sorted(found, key=lambda checkpoint: checkpoint.step))

    def give_up(self, now: datetime) -> None:
        self.before_the_end()
        super().give_up(now)

    def wait(self, timeout_s: float) -> None:
        """Let the clock run instead."""
        self.pass_time(timeout_s)


def agent_of(home: Path, database: Engine, clock: FakeClock) -> LogFollower:
    settings = AgentSettings(run="run", output_dir=str(home / "out"), patterns=(), rules=load_rules().lines)
    agent = follower_of(settings, database, clock)
    agent.reading = replace(agent.reading, save_every_s=0.0)  # here, a watch ends with the last line of the training
    return agent


def print_more(home: Path) -> None:
    """Be the trainer for a moment."""
    with (home / "out" / "train.log").open("ab") as log:
        log.write(LOG.encode()[log.tell() :][:GROWTH])


def replayed(events: Iterable[RunEvent], reports: Iterable[Report], open_alerts: Iterable[Alert]) -> list[str]:
    """Return what the log comes to: finds, gaps, the word of each checkpoint, and where another one is stored.

    What it says on the way depends on how often a checkpoint that has failed was evaluated again: once a start.
    """
    said: dict[tuple[int | None, str], str] = {}
    firing: set[str] = set()
    for event in events:
        if event.kind in (EventKind.ALERT, EventKind.CORRECTED, EventKind.RESOLVED):
            firing.discard(event.before)
            firing |= set() if event.kind is EventKind.RESOLVED else {event.after}
        elif event.kind is EventKind.FOUND:
            said[event.step, "found"] = ""
        else:
            said[event.step, event.reason if event.kind is EventKind.GAP else "word"] = event.after.split()[-1]
    unlogged = firing ^ {shortened(one_line(alert.message), CHARS) for alert in open_alerts}
    unlogged |= {f"{one.step}: {v.word}" for one in reports for v in one.verdicts if said[one.step, "word"] != v.word}
    return sorted(f"{step} {what} {word}" for (step, what), word in said.items()) + sorted(unlogged)


def without_standing(alert: Alert) -> Alert:
    """Return an alert without what it says of that moment: the checkpoints, or the incidents, that were known."""
    if alert.subject.kind is SubjectKind.TRAINING:
        return replace(alert, message="")
    return replace(alert, message=alert.message.partition(" (in the training")[0])
