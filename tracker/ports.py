"""What the tracker needs from the outside world. Each docstring holds the rules that an adapter must obey."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eval_jobs.types import Checkpoint, EvalRecord
from tracker.domain.checkpoints.leading import Leader
from tracker.domain.records.alerts import Alert, AlertMessage, ChannelState, Silence
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.tracking import Champion, TrackingItem
from tracker.domain.records.types import Acceptance, CurvePoint, Episode, Gap, Measure, Report
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.sweeps.types import Look, Turn, TurnState


class CheckpointSource(Protocol):
    """Finds and pins the checkpoints of one training output folder."""

    def ready(self, now: datetime) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that is complete and pinned, lowest step first, new content only.

        One call looks at the disk once; a source over a network looks by itself, and a call tells what it found. A
        checkpoint is returned once per process; after a restart all pinned ones are returned again, because the process
        may have died before it used them. Nothing where the trainer writes is written, renamed or deleted.
        """

    def gaps(self) -> tuple[Gap, ...]:
        """Return every checkpoint that cannot be evaluated, found so far by this process, with the reason."""

    def is_behind(self) -> bool:
        """Return whether more may be there than is known: storage does not answer, or a download is under way."""

    def give_up(self, now: datetime) -> None:
        """Make a gap of every checkpoint that is not finished: the training has ended, and nobody will finish it.

        What cannot be looked at now is no gap.
        """

    def wait(self, timeout_s: float) -> None:
        """Return after `timeout_s`, or earlier when something may have changed on disk, or `wake` was called."""

    def wake(self) -> None:
        """Let a `wait` that goes on, or else the next one, return at once. May be called from any thread."""

    def close(self) -> None:
        """Stop watching. Calling it twice is harmless."""


@dataclass(frozen=True, kw_only=True)
class HeldPin:
    """One of our pins, and what it costs."""

    checkpoint: Checkpoint
    own_bytes: int
    """What deleting it frees: files that the trainer still has take no further space."""


class Pins(Protocol):
    """Our own holds on checkpoints, once they are published."""

    def held(self) -> tuple[HeldPin, ...]:
        """Return every pin that holds weights, of every run, ordered by (run, step, digest)."""

    def given_up(self) -> frozenset[str]:
        """Return the `uri` of every checkpoint whose weights were given up."""

    def release(self, pin: HeldPin) -> bool:
        """Give up the files of a pin; False and nothing is done when somebody uses it or it is gone.

        The checkpoint is not pinned anew while the trainer's folder is unchanged. Nothing of the trainer is touched.

        Raises:
            DiskFull, StoreError: the pin cannot be changed.
        """

    def in_use(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:
        """Keep the pin of `checkpoint` from being released, by any process, while the context is open."""


class Lead(Protocol):
    """The right to watch one run. One process at a time has it, until it gives it up or ends, however it ends."""

    def take(self, now: datetime) -> bool:
        """Take the lead, or confirm it; False when another process has it.

        One that was cut off from the database has lost the lead, and takes it anew when it is free.

        Raises:
            StoreError: the database cannot be asked, and so nobody can say who leads.
            ConfigError: another run of the database has a name that cannot be told from one of this run's sub-folders.
        """

    def leader(self) -> Leader | None:
        """Return who led last, None when nobody ever did."""

    def release(self) -> None:
        """Let another process lead. Calling it twice is harmless."""


class CurveReader(Protocol):
    """Reads training curves that the trainer left on disk."""

    def read(self, checkpoint: Checkpoint) -> tuple[CurvePoint, ...]:
        """Return all finite points known at this checkpoint, ordered by step; () when there are none."""

    def last_step(self, checkpoint: Checkpoint) -> int | None:
        """Return the step at which the training will end, None where the trainer did not leave it on disk."""

    def logged_at(self, checkpoint: Checkpoint) -> datetime | None:
        """Return when the trainer last wrote a log beside this checkpoint, by the file server's clock; None: never."""


class History(Protocol):
    """Everything that was ever measured and concluded. Appending is idempotent."""

    def append(self, record: EvalRecord) -> None:
        """Store a record under its plan id; the same id again replaces it."""

    def record(self, plan_id: str, benchmarks: Collection[str] | None = None) -> EvalRecord | None:
        """Return one record with all samples and their texts, or None; with `benchmarks` only theirs have samples.

        Where texts were deleted to save space, the samples have none and their result says so (`has_texts`).
        """

    def bare_record(self, plan_id: str) -> EvalRecord | None:
        """Return one record, every result without its samples, or None."""

    def records(self, run_id: str) -> tuple[EvalRecord, ...]:
        """Return the run's records ordered by (step, finished_at, plan id), every result without its samples."""

    def scores(
        self, run_id: str, measures: tuple[Measure, ...] = tuple(Measure), steps: Collection[int] | None = None
    ) -> RunScores:
        """Return everything that was scored along the run, as if made from all its records at once.

        Fewer measures take less time, and so do fewer `steps`; None: all. What is read of all steps is kept in memory:
        another call with the same measures reads only the samples of records that are new or were replaced since,
        whichever process wrote them.
        """

    def texts(self, run_id: str) -> Mapping[str, int]:
        """Return the plans of the run whose answers are kept as texts, each with their size in bytes."""

    def forget_texts(self, plan_id: str) -> None:
        """Delete what the model answered under a plan; scores and questions stay. None there: no-op."""

    def append_report(self, report: Report) -> None:
        """Store a report under its plan id; the same id again replaces it."""

    def report(self, plan_id: str) -> Report | None:
        """Return the report of a plan, or None."""

    def reports(self, run_id: str) -> tuple[Report, ...]:
        """Return the run's reports ordered by step."""

    def outlines(self, run_id: str) -> tuple[Report, ...]:
        """Return what `records.outlines.outlined` makes of the run's reports, without reading them all."""

    def append_episode(self, episode: Episode) -> None:
        """Store an episode; one of the same run, suite, benchmark, subset, measure and opened_step is replaced.

        One that somebody accepted stays accepted: a checkpoint that was judged meanwhile did not know it.
        """

    def episodes(self, run_id: str) -> tuple[Episode, ...]:
        """Return the run's episodes, open and closed, ordered by (opened_step, benchmark, subset)."""

    def append_acceptance(self, acceptance: Acceptance) -> None:
        """Store an acceptance; one of the same run, step and benchmark is replaced."""

    def acceptances(self, run_id: str) -> tuple[Acceptance, ...]:
        """Return the run's acceptances ordered by (step, benchmark)."""

    def append_calibration(self, calibration: Calibration) -> None:
        """Store a calibration under its plan id; the same id again replaces it."""

    def calibrations(self) -> tuple[Calibration, ...]:
        """Return the calibrations of all runs, ordered by (finished_at, plan id)."""

    def append_gap(self, gap: Gap) -> bool:
        """Store a gap under (run, step, code); return False when it is known already."""

    def gaps(self, run_id: str) -> tuple[Gap, ...]:
        """Return the run's gaps ordered by step."""

    def append_alert(self, alert: Alert) -> None:
        """Store the newest state of an alert under its fingerprint."""

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        """Return the run's alerts that are firing."""

    def runs(self) -> tuple[str, ...]:
        """Return the ids of all runs, ordered by name."""


class Sweeps(Protocol):
    """The turns of one run's sweeps, and what came of them. Safe for several processes; appending is idempotent."""

    def take(self, holder: str, *, now: datetime, lease_until: datetime) -> bool:
        """Take or prolong the right to begin turns; False while another holder's lease lasts.

        A lease that ends later than `lease_until` was given before the clock was set back, and does not last.
        """

    def release(self, holder: str) -> None:
        """Give that right up. Not this holder's: no-op."""

    def look(self, sweep: str) -> Look | None:
        """Return until when a sweep's timetable was followed, None: it never was."""

    def remember(self, sweep: str, look: Look) -> None:
        """Store until when a sweep's timetable was followed."""

    def add(self, turn: Turn) -> bool:
        """Store a turn that is new; False and nothing is done when its sweep has one that was due at that time."""

    def change(self, turn: Turn, *, was: TurnState) -> bool:
        """Store what became of a turn; False and nothing is done when its state is not `was` any more."""

    def open_turns(self) -> tuple[Turn, ...]:
        """Return the turns that are due or running, the one that was due first before the others."""

    def turns(self, sweep: str) -> tuple[Turn, ...]:
        """Return all turns of a sweep, the one that was due last first."""

    def append(self, record: EvalRecord) -> None:
        """Store a result under its plan id; the same id again replaces it."""

    def answered(self, plan_ids: Collection[str]) -> frozenset[str]:
        """Return which of these plans have a result."""

    def results(self, plan_ids: Collection[str]) -> Mapping[str, EvalRecord]:
        """Return the results that there are, by plan id."""


class Tracking(Protocol):
    """Writes results and curves where people look at them. Never loses, never doubles, never blocks the watcher."""

    def publish(self, record: EvalRecord, report: Report, left: Sequence[Checkpoint] = ()) -> None:
        """Queue a record with its verdicts for publication; one with the words that it had last changes nothing.

        `left` are the checkpoints of its run that training left behind: none of them is the newest any more.

        A record of the same plan that finished later, such as a repair, is published too, and so are other words on
        the same record: what they hold newly or otherwise is what people see from then on.
        """

    def publish_curves(self, checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> None:
        """Queue curve points that were not queued before for this run."""

    def publish_sweep(self, record: EvalRecord) -> None:
        """Queue the result of a plan of a sweep for publication; a record that was queued before changes nothing."""

    def publish_champions(self, checkpoint: Checkpoint, champions: Sequence[Champion]) -> None:
        """Queue which checkpoints the run's aliases name, as known after `checkpoint`; as queued last: no-op."""

    def flush(self) -> int:
        """Send what is queued and return how many items still wait. A store that is down is not an error here."""

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class TrackingSink(Protocol):
    """The store behind an outbox. Sending an item again completes what was cut off before, and doubles nothing."""

    def send(self, item: TrackingItem) -> None:
        """Write all of `item`, in bounded time.

        Raises:
            TrackingUnreachable: the store does not answer; no other item would fare better now.
            StoreError: the store refuses this item; others may pass.
        """

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class Alerting(Protocol):
    """Tells people, on every channel, at least once. Never loses an alert, never blocks the watcher."""

    def publish(self, alerts: Sequence[Alert]) -> None:
        """Queue alerts for every channel.

        One whose fingerprint was queued last in the same state changes nothing, and so does the end of what was never
        queued: a channel that is new is not told of the end of what began before it.
        """

    def flush(self) -> int:
        """Let every channel send what is due, each by itself, and return how many alerts wait. Nothing is waited for.

        What is due for one checkpoint goes in one message. A channel that is away is no error here: it is asked
        again later, and no other channel waits for it.
        """

    def close(self) -> None:
        """Give the channels a moment to take what is due. Calling it twice is harmless."""

    def channels(self) -> tuple[ChannelState, ...]:
        """Return the state of every channel: the configured ones, and those for which something waits all the same."""

    def hand_over(self, old: str, new: str) -> tuple[Alert, ...]:
        """Let the channel `new` stand for `old`: what waits for it, and what it was told. Return what is firing of it.

        Of a cause of which `new` has heard itself, nothing is taken over.
        """

    def give_up(self, channel: str) -> int:
        """Forget a channel, and return how many alerts it will never be told. One that is not known: 0."""

    def silence(self, silence: Silence) -> None:
        """Hold back from now on what it means, until it ends; one of the same id is replaced.

        What is firing at its end is told then; what began and ended meanwhile is not.
        """

    def silences(self) -> tuple[Silence, ...]:
        """Return the silences that have not ended, those that end first before the others."""


class Notifier(Protocol):
    """One channel to people."""

    @property
    def name(self) -> str:
        """Name that a person gave it."""

    @property
    def repeat_s(self) -> float | None:
        """Seconds after which the service must hear again what is firing, because it forgets; None: it does not."""

    def notify(self, message: AlertMessage) -> str:
        """Deliver the message in bounded time, at most 30 s, and return what the service answered, one line.

        It is delivered when the service itself says so, not when a connection worked.

        Raises:
            ChannelUnreachable: nobody answers, or the service is too busy: later it may work.
            ChannelRefused: the service does not take this message, key or signature.
        """
