"""Finds and pins the checkpoints below a prefix of a bucket: `tracker.ports.CheckpointSource` over S3.

    a thread, every rescan_s:  list -> read what is new -> unchanged for long enough? -> download -> publish
    ready():                   what the thread has published since

No caller waits for the network: `ready` and `gaps` return known results. Nothing in the bucket is written or deleted.
A scan is one request per 1,000 objects below the prefix. A new checkpoint costs one more for each safetensors file and
each JSON file that decides on completeness, one for multipart uploads, and its download.
"""

import logging
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath

from eval_jobs.errors import CheckpointIncomplete, ConfigError, StoreError, StoreUnavailable
from eval_jobs.host.unforeseen import Edge, bug_of, error_text, report_unforeseen
from eval_jobs.ports import Clock
from eval_jobs.types import Checkpoint
from tracker.adapters.checkpoints.bucket.client import Bucket
from tracker.adapters.checkpoints.bucket.fetch import Fetcher, SourceClosed
from tracker.adapters.checkpoints.bucket.listing import Prefix, Reader, facts_of_listing, group
from tracker.adapters.checkpoints.pins.publisher import Complaints, Publisher, SteadyClock
from tracker.adapters.checkpoints.pins.recovery import find_pins
from tracker.domain.checkpoints.buckets import late_files
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.lifecycle import Watched
from tracker.domain.checkpoints.listing import Listing
from tracker.domain.checkpoints.unusable import NotYet
from tracker.domain.checkpoints.watching import STALLED_S, WatchOptions, is_quiet
from tracker.domain.checkpoints.watchlist import Watchlist
from tracker.domain.records.types import Gap

log = logging.getLogger(__name__)

CLOSE_S = 5.0
"""Seconds that `close` waits for a running request."""


class BucketSource:
    """`tracker.ports.CheckpointSource` for one prefix of a bucket."""

    def __init__(self, run_name: str, bucket: Bucket, pins_dir: Path, options: WatchOptions, clock: Clock) -> None:
        """Set what to watch; nothing is requested or written before the first call of `ready`."""
        self._run_name = run_name
        self._bucket = bucket
        self._pins_dir = pins_dir.absolute()
        self._options = options
        self._clock = SteadyClock(clock)
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._reader = Reader(bucket)
        self._watchlist = Watchlist(options, is_bucket=True)
        self._fetcher = Fetcher(bucket, self._pins_dir, self._stopped)
        self._looking = threading.RLock()
        """Held during a whole scan. Returning known results does not need it."""
        self._publisher = Publisher(self._watchlist, self._looking)
        self._gaps: tuple[Gap, ...] = ()
        self._complaints = Complaints()
        self._outage: ConfigError | StoreError | None = None
        self._edge = Edge(log, f"cannot scan {bucket.location.uri}", then="retrying")
        self._is_behind = True
        """Also True until the first scan has ended."""
        self._thread: threading.Thread | None = None

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that is complete and pinned, lowest step first, new content only."""
        if self._thread is None:
            self._start(now)
        return self._publisher.take()

    def gaps(self) -> tuple[Gap, ...]:
        """Return every checkpoint that cannot be evaluated, found so far by this process, with the reason."""
        return self._gaps

    def is_behind(self) -> bool:
        """Return whether the server does not respond, or a complete checkpoint still has to be downloaded."""
        return self._is_behind

    def give_up(self, now: datetime) -> None:  # noqa: ARG002 - part of the port
        """Record a gap for every unfinished checkpoint, except during an outage."""
        with self._looking:
            if self._outage is None:
                self._watchlist.give_up(self._clock.now())
            self._gaps = self._watchlist.gaps.found()

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or earlier when a checkpoint has been published."""
        self._wake.wait(timeout_s)
        self._wake.clear()

    def wake(self) -> None:
        """Make `wait` return immediately; see the port."""
        self._wake.set()

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless; the next start resumes a download."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def look(self, now: datetime) -> None:
        """Scan the bucket once and download settled checkpoints. An outage is logged once and not raised."""
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
                self._gaps = self._watchlist.gaps.found()

    def _start(self, now: datetime) -> None:
        uri = self._bucket.location.uri
        self._fetcher.adopt(self._run_name, now)  # before the incomplete holds of dead processes are removed
        pins = find_pins(self._pins_dir, self._run_name, PurePosixPath(uri), now)
        self._watchlist.restore(pins, now)
        self._publisher.restore(pins)
        thread = threading.Thread(target=self._watch, name="bucket-watch", daemon=True)
        thread.start()
        self._thread = thread  # set last: a thread that was interrupted during its start cannot be joined

    def _watch(self) -> None:
        while not self._stopped.is_set():
            with self._edge.guarded():
                self.look(self._clock.now())
            with self._looking:
                settles_in_s = self._watchlist.settles_in_s(self._clock.now(), {})
            pause_s = self._options.rescan_s
            if settles_in_s:  # 0: it could not be pinned now, and is retried at the usual pace
                pause_s = min(pause_s, settles_in_s)
            self._stopped.wait(pause_s)

    def _look(self, now: datetime) -> None:
        self._watchlist.retry()
        self._publish_due(now)
        location = self._bucket.location
        found = group(self._bucket.objects(), location, run_name=self._run_name, pattern=self._options.pattern)
        prefixes = {prefix.uri: prefix for prefix in found}
        self._note(prefixes, now)
        self._fetcher.keep(prefixes.keys())
        for one in self._watchlist.settled(now):
            if not self._is_uploading(prefixes[one.site.uri], one, now):
                self._bring(prefixes[one.site.uri], one, now)
        for one in self._watchlist.overdue(now):
            if not self._is_uploading(prefixes[one.site.uri], one, now):
                self._watchlist.add_gap(one, now)

    def _note(self, prefixes: Mapping[str, Prefix], now: datetime) -> None:
        """Update the watchlist with everything found, after all new files have been read."""
        transitions = [self._watchlist.look(prefix, facts_of_listing(prefix), now) for prefix in prefixes.values()]
        read = {t.after.site.uri: self._read(prefixes[t.after.site.uri]) for t in transitions if t.is_read}
        self._watchlist.keep(prefixes.keys(), now)
        for transition in transitions:
            self._watchlist.note(transition, read.get(transition.after.site.uri))
            if transition.after.pin is not None:
                self._say_what_is_late(prefixes[transition.after.site.uri], transition.after.pin.complete)
        self._watchlist.gaps.add_missed(now)

    def _say_what_is_late(self, prefix: Prefix, taken: Complete) -> None:
        for name in late_files(prefix.objects.keys(), taken):
            self._complaints.say(
                f"{prefix.uri}/{name} was uploaded after the checkpoint was pinned and is ignored: "
                "set watch.settle_s above the upload time of your largest file"
            )

    def _read(self, prefix: Prefix) -> Listing | NotYet:
        try:
            return self._reader.listing(prefix)
        except ConfigError as error:  # one object of another owner, or archived, must not stop the scan
            return NotYet(code=CheckpointIncomplete.code, reason=error.message, hint=error.hint)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug over one checkpoint must not end the scan
            report_unforeseen(log, f"cannot read {prefix.uri}", error, then="retrying")
            bug = bug_of(error_text(error))
            return NotYet(code=bug.code, reason=bug.message, hint=bug.hint)

    def _is_uploading(self, prefix: Prefix, one: Watched, now: datetime) -> bool:
        """Return whether a multipart upload is in progress; an abandoned one counts only for `STALLED_S`."""
        if is_quiet(one.since, now, STALLED_S):
            return False
        below = f"{prefix.uri}/".removeprefix(f"{self._bucket.location.uri}/")
        there = {o.key: o.modified_ns for o in prefix.objects.values()}
        begun = self._bucket.uploads(below)
        return any(when.timestamp() * 1e9 > there.get(key, 0) for key, when in begun.items())

    def _bring(self, prefix: Prefix, one: Watched, now: datetime) -> None:
        if not isinstance(one.readiness, Complete):
            return
        self._is_behind = True
        log.info("%s step %d is complete, downloading it", prefix.run_id, prefix.step)
        try:
            pin = self._fetcher.hold(prefix, one.readiness)
        except StoreUnavailable:
            raise
        except (ConfigError, StoreError) as error:
            self._complaints.say(str(error))
            self._watchlist.not_held(prefix.uri, error.message)
            return
        if pin is None:
            self._watchlist.unseen(prefix.uri, now)
            trouble = "deleted or overwritten during the download"
            self._watchlist.not_held(prefix.uri, trouble)
            return
        self._reader.forget(prefix)
        self._watchlist.held(prefix.uri, pin)
        self._publish_due(now)

    def _publish_due(self, now: datetime) -> None:
        while (pin := self._watchlist.next_due(now, {})) is not None:
            self._publisher.publish(pin, now)
            self._wake.set()

    def _went_away(self, error: ConfigError | StoreUnavailable, now: datetime) -> None:
        """Log an outage once. A ConfigError needs action by the user, so the source is then not behind."""
        if type(error) is not type(self._outage):
            log.warning("%s", error)
        self._outage, self._is_behind = error, isinstance(error, StoreUnavailable)
        self._watchlist.all_unseen(now)

    def _came_back(self) -> None:
        if self._outage is not None:
            log.warning("%s reachable again", self._bucket.location.uri)
        self._outage, self._is_behind = None, self._watchlist.are_expected()
