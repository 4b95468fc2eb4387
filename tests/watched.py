"""A source over folders that a test writes by hand, on a clock that stands still until it is moved."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eval_jobs.types import Checkpoint
from tests.fakes.clock import FakeClock
from tracker.adapters.checkpoints.folder.source import FilesystemSource
from tracker.domain.checkpoints.watching import WatchOptions, time_of_ns

SETTLE_S = 3.0
RESCAN_S = 10.0


@dataclass(kw_only=True)
class Watched:
    """A source, its folders, and a clock that starts now, because file times are real."""

    out: Path
    pins: Path
    clock: FakeClock
    source: FilesystemSource

    def look(self, after_s: float = 0.0) -> tuple[Checkpoint, ...]:
        self.clock.advance(after_s)
        return self.source.ready(self.clock.now())

    def settle(self) -> tuple[Checkpoint, ...]:
        """Look now, after a full sweep that notices everything, and when what it held has settled."""
        return self.look() + self.look(RESCAN_S) + self.look(RESCAN_S)

    def steps(self) -> list[int]:
        return [c.step for c in self.settle()]

    def reasons(self) -> list[tuple[int, str]]:
        return [(gap.step, gap.code) for gap in self.source.gaps()]


@contextmanager
def watching(
    root: Path, pattern: str = "", below: str = "", config_from: str = "", convert: tuple[str, ...] = ()
) -> Iterator[Watched]:
    marker = root / "clock"
    marker.touch()
    clock = FakeClock(time_of_ns(marker.stat().st_mtime_ns))
    out, pins = root / "out" / below, root / "state" / "pins"
    options = WatchOptions(
        pattern=pattern, settle_s=SETTLE_S, rescan_s=RESCAN_S, polling=True, config_from=config_from, convert=convert
    )
    source = FilesystemSource("run", out, pins, options, clock)
    try:
        yield Watched(out=out, pins=pins, clock=clock, source=source)
    finally:
        source.close()
