"""What lies around the small world of `tests.small_world`: a tracking store and channels that fail once, or always."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from eval_jobs.errors import StoreError, TrackingUnreachable
from eval_jobs.identity import content_hash
from tracker.domain.tracking_types import TrackingItem
from tracker.domain.types import Alert

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

    def close(self) -> None:
        """Keep nothing open."""


class Notifier:
    def __init__(self, path: Path) -> None:
        self._path = path

    def notify(self, alert: Alert) -> None:
        with self._path.open("a") as file:
            file.write(f"{alert.state} {alert.subject} {alert.step}\n")


class BrokenNotifier:
    def notify(self, alert: Alert) -> None:
        raise StoreError(f"{alert.fingerprint} cannot be delivered", hint="look at the channel")
