"""Finds and pins the checkpoints below a prefix of a bucket: `tracker.ports.CheckpointSource` over S3.

    a thread, every rescan_s:  list -> read what is new -> unchanged for long enough? -> download -> publish
    ready():                   what the thread has published since

Nobody waits for the network: `ready` and `gaps` tell what is known. Nothing in the bucket is ever written or deleted.
A look is one request per 1,000 objects below the prefix; a new checkpoint costs one more for each safetensors file and
each JSON file that decides, one for uploads in parts, and its download.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from eval_jobs.errors import CheckpointError, CheckpointIncomplete, ConfigError, StoreError, StoreUnavailable
from eval_jobs.host.unforeseen import report_unforeseen
from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.bucket.client import Bucket
from tracker.adapters.checkpoints.bucket.fetch import Fetcher, SourceClosed
from tracker.adapters.checkpoints.bucket.listing import Prefix, Reader, group
from tracker.adapters.checkpoints.bucket.uploads import Upload, Uploads
from tracker.adapters.checkpoints.pins.hold import Pin, publish, remove_folder
from tracker.adapters.checkpoints.pins.recovery import find_pins
from tracker.domain.checkpoints.completeness import Complete, NotYet, WatchOptions
from tracker.domain.checkpoints.listing import Listing
from tracker.domain.checkpoints.watching import STALLED_S, is_quiet
from tracker.domain.records.types import Gap

log = logging.getLogger(__name__)

CLOSE_S = 5.0
"""How long closing waits for a request that is under way."""


class BucketSource:
    """`tracker.ports.CheckpointSource` for one prefix of a bucket."""

    def __init__(self, run_name: str, bucket: Bucket, pins_dir: Path, options: WatchOptions, clock: Clock) -> None:
        """Describe what to watch; nothing is asked or written before the first call of `ready`."""
        self._run_name = run_name
        self._bucket = bucket
        self._pins_dir = pins_dir.absolute()
        self._options = options
        self._clock = clock
        self._began_at, self._began_s = clock.now(), clock.monotonic_s()
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._reader, self._uploads = Reader(bucket), Uploads(options)
        self._fetcher = Fetcher(bucket, self._pins_dir, self._stopped)
        self._looking = threading.Lock()
        """Held for a whole look; what follows is small and lies beside it under a lock of its own."""
        self._lock = threading.Lock()
        self._fresh: list[Checkpoint] = []
        self._gaps: tuple[Gap, ...] = ()
        self._returned: set[tuple[str, int, str, str]] = set()
        self._due: list[Pin] = []
        self._reported: set[str] = set()
        self._outage: ConfigError | StoreError | None = None
        self._is_behind = True
        """Until the first look has ended, too."""
        self._thread: threading.Thread | None = None

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that is complete and pinned, lowest step first, new content only."""
        if self._thread is None:
            self._start(now)
        with self._lock:
            fresh, self._fresh = sorted(self._fresh, key=lambda c: (c.step, c.run_id, c.ready_at)), []
            return tuple(c for c in fresh if self._is_first(c))

    def gaps(self) -> tuple[Gap, ...]:
        """Return every checkpoint that cannot be evaluated, found so far by this process, with the reason."""
        with self._lock:
            return self._gaps

    def is_behind(self) -> bool:
        """Return whether the server does not answer, or a finished checkpoint is on its way here."""
        return self._is_behind

    def give_up(self, now: datetime) -> None:  # noqa: ARG002 - part of the port
        """Make a gap of every checkpoint that is not finished; what an outage hides is none."""
        with self._looking:
            if self._outage is None:
                self._uploads.give_up(self._steady_time())
            self._report_gaps()

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or earlier when a checkpoint has been published."""
        self._wake.wait(timeout_s)
        self._wake.clear()

    def wake(self) -> None:
        """Let `wait` return at once; see the port."""
        self._wake.set()

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless; a download goes on at the next start."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def look(self, now: datetime) -> None:
        """Look at the bucket once and bring what has settled. A server that is away is said once, and no error."""
        with self._looking:
            try:
                self._look(now)
            except SourceClosed:
                return
            except (ConfigError, StoreUnavailable) as error:
                self._went_away(error, now)
            else:
                self._came_back()
            finally:
                self._report_gaps()

    # --- private

    def _start(self, now: datetime) -> None:
        uri = self._bucket.location.uri
        self._fetcher.adopt(self._run_name, now)  # before the half-made holds of dead processes are cleared away
        pins = find_pins(self._pins_dir, self._run_name, PurePosixPath(uri), now)
        self._uploads.restore(pins, now)
        self._fresh = [pin.checkpoint for pin in pins if pin.checkpoint is not None and not pin.released]
        self._due = [pin for pin in pins if pin.checkpoint is None]
        self._thread = threading.Thread(target=self._watch, name="bucket-watch", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look(self._steady_time())
            except Exception as error:  # noqa: BLE001 - the edge of a thread: without it nothing would ever be found again
                report_unforeseen(
                    log, f"looking at {self._bucket.location.uri} failed", error, then="it is tried again"
                )
            with self._looking:
                settles_in_s = self._uploads.settles_in_s(self._steady_time())
            pause_s = self._options.rescan_s
            if settles_in_s:  # 0: it was refused now, and is tried at the usual pace
                pause_s = min(pause_s, settles_in_s)
            self._stopped.wait(pause_s)

    def _steady_time(self) -> datetime:
        """Return the time of day without the jumps that somebody makes who sets the clock."""
        return self._began_at + timedelta(seconds=self._clock.monotonic_s() - self._began_s)

    def _look(self, now: datetime) -> None:
        for pin in self._due[:]:
            self._publish(pin, now)
        location = self._bucket.location
        prefixes = group(self._bucket.objects(), location, run_name=self._run_name, pattern=self._options.pattern)
        self._uploads.saw(prefixes, {p.uri: self._read(p) for p in self._uploads.unread(prefixes)}, now)
        self._fetcher.keep({p.uri for p in prefixes})
        for upload in self._uploads.settled(now):
            if not self._is_uploading(upload, now):
                self._bring(upload, now)
        for upload in self._uploads.overdue(now):
            if not self._is_uploading(upload, now):
                self._uploads.add_gap(upload, now)

    def _read(self, prefix: Prefix) -> Listing | NotYet:
        try:
            return self._reader.listing(prefix)
        except ConfigError as error:  # one object of another owner, or in an archive, is no reason to stop
            return NotYet(code=CheckpointIncomplete.code, reason=error.message, hint=error.hint)

    def _is_uploading(self, upload: Upload, now: datetime) -> bool:
        """Return whether a large object is on its way; what was begun and left lying holds nobody up for ever."""
        if upload.prefix is None or is_quiet(upload.since, now, STALLED_S):
            return False
        location = self._bucket.location
        below = f"{upload.site.uri}/".removeprefix(f"{location.uri}/")
        there = {o.key: o.modified_ns for o in upload.prefix.objects.values()}
        begun = self._bucket.uploads(below)
        return any(when.timestamp() * 1e9 > there.get(key, 0) for key, when in begun.items())

    def _bring(self, upload: Upload, now: datetime) -> None:
        if upload.prefix is None or not isinstance(upload.readiness, Complete):
            return
        self._is_behind = True
        log.info("%s step %d is complete and downloaded now", upload.site.run_id, upload.site.step)
        try:
            pin = self._fetcher.hold(upload.prefix, upload.readiness)
        except StoreUnavailable:
            raise
        except (ConfigError, StoreError) as error:
            self._say(error)
            upload.trouble = error.message
            return
        if pin is None:
            self._uploads.changed(upload, now)
            return
        self._reader.forget(upload.prefix)
        self._uploads.taken(upload, pin)
        self._due.append(pin)
        self._publish(pin, now)

    def _publish(self, pin: Pin, now: datetime) -> None:
        try:
            checkpoint = publish(pin)
        except CheckpointError as error:
            self._uploads.gaps.add(Prefix(run_id=pin.run_id, step=pin.step, uri=pin.source), error, now)
            remove_folder(Path(pin.folder))
        except StoreError as error:
            self._say(error)  # it stays due
            return
        else:
            self._uploads.gaps.forget(pin.source)
            with self._lock:
                self._fresh.append(checkpoint)
            self._wake.set()
        self._due.remove(pin)

    def _report_gaps(self) -> None:
        with self._lock:
            self._gaps = self._uploads.gaps.found()

    def _went_away(self, error: ConfigError | StoreUnavailable, now: datetime) -> None:
        """Say an outage once. Where somebody must act, nothing is expected to come by itself."""
        if type(error) is not type(self._outage):
            log.warning("%s", error)
        self._outage, self._is_behind = error, isinstance(error, StoreUnavailable)
        self._uploads.wait_longer(now)

    def _came_back(self) -> None:
        if self._outage is not None:
            log.warning("%s is read again", self._bucket.location.uri)
        self._outage, self._is_behind = None, self._uploads.are_expected()

    def _say(self, error: ConfigError | StoreError) -> None:
        """Log a trouble of one checkpoint that lasts over many looks once."""
        if error.message not in self._reported:
            log.warning("%s", error)
            self._reported.add(error.message)

    def _is_first(self, checkpoint: Checkpoint) -> bool:
        key = (checkpoint.run_id, checkpoint.step, checkpoint.digest, checkpoint.files_digest)
        is_first = key not in self._returned
        self._returned.add(key)
        return is_first
