"""Dispatches alerts: each one is queued for the channels, written to the log and stored in the history."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from eval_jobs.errors import StoreError
from eval_jobs.types import EvalRecord
from tracker.domain.compare.view import ComparisonView, RunNoise, compare_what_can_be
from tracker.domain.records.alerts import Alert, AlertEvidence, AlertKind, AlertState, AlertSubject, Patience
from tracker.domain.records.display import one_line, shortened
from tracker.domain.records.losses import Measure
from tracker.domain.records.policy import Policy
from tracker.ports import AlertSender, AlertStore, RecordStore

log = logging.getLogger(__name__)

QUESTION_CHARS = 120
_ONLY_LOGGED = frozenset(
    (
        *(AlertKind.OVERDUE, AlertKind.STUCK, AlertKind.UNSENT),
        *(AlertKind.CRASH, AlertKind.HANG, AlertKind.DIVERGED, AlertKind.FAULT, AlertKind.ANOMALY),
    )
)
"""Commands print the causes of the other kinds themselves: verdicts, gaps and noise."""
_LOOKED_AT = 100
"""Samples with the largest loss that are searched; those of one subset are among them."""


@dataclass(frozen=True, kw_only=True)
class AlertDispatcher:
    """Sends alerts and remembers them."""

    alerts: AlertStore
    records: RecordStore
    alerting: AlertSender
    samples: int = 3
    """Number of lost samples whose questions an alert shows."""
    log_lines: int = 5
    """Number of lines of the trainer's log that an alert shows."""
    held: frozenset[AlertKind] = frozenset()
    """Kinds of which firing alerts are dropped here; `lasting_alerts` reports later which of them persist."""
    patience: Patience = field(default_factory=Patience)
    """How long checkpoints or evaluations may be absent before an alert is raised."""

    def dispatch(self, alerts: Iterable[Alert], record: EvalRecord | None = None) -> None:
        """Queue alerts for every channel and store them; repeating it is harmless. Lost samples come from `record`.

        Raises:
            StoreError: an alert cannot be queued or stored.
        """
        to_send = []
        for alert in alerts:
            if alert.kind not in self.held or alert.state is not AlertState.FIRING:
                to_send.append(self._with_questions(alert, record))
        if not to_send:
            return
        self.alerting.publish(to_send)
        for alert in to_send:
            level = logging.WARNING if alert.kind in _ONLY_LOGGED else logging.INFO
            log.log(level, "%s: %s: %s", alert.state, alert.run_id, _with_first_line(alert))
            self.alerts.append_alert(alert)  # after the outbox: a repeat after a crash in between queues nothing twice

    def _with_questions(self, alert: Alert, record: EvalRecord | None) -> Alert:
        """Return the alert of a loss with a few questions that were answered correctly before."""
        evidence, benchmark = alert.evidence, alert.subject.name
        if record is None or evidence is None or not _has_lost_answers(alert, evidence):
            return alert
        try:
            before = self._evaluated(record, benchmark, evidence.baseline_steps[-1])
        except StoreError as error:  # earlier samples may be gone; the alert is sent without them
            log.debug("cannot read the lost samples of %s: %s", benchmark, error)
            return alert
        if before is None:
            return alert
        view = compare_what_can_be(before, record, Policy(), RunNoise(), examples=_LOOKED_AT)
        questions = tuple(islice(_lost_questions(view, alert.subject), self.samples))
        return replace(alert, evidence=replace(evidence, lost_samples=questions))

    def _evaluated(self, record: EvalRecord, benchmark: str, step: int) -> EvalRecord | None:
        """Return the newest record of that step of the run that has a result of the benchmark, with its samples."""
        run_id = record.plan.checkpoint.run_id
        known: Sequence[EvalRecord] = self.records.records(run_id)
        of_step = [record for record in known if record.plan.checkpoint.step == step]
        for before in reversed(of_step):
            if benchmark in [result.benchmark for result in before.results]:
                return self.records.record(before.plan.id, [benchmark])
        return None


def _with_first_line(alert: Alert) -> str:
    """Return the message with the line of the trainer's log that shows the cause, if the alert quotes any."""
    if alert.state is not AlertState.FIRING or alert.evidence is None or not alert.evidence.lines:
        return alert.message
    return f"{alert.message}: {alert.evidence.lines[0]}"


def _has_lost_answers(alert: Alert, evidence: AlertEvidence) -> bool:
    """Return whether the alert is a new loss of correct answers."""
    if alert.kind is not AlertKind.LOSS or alert.state is not AlertState.FIRING:
        return False
    return alert.subject.measure is Measure.SCORE and evidence.n_lost > 0 and bool(evidence.baseline_steps)


def _lost_questions(view: ComparisonView, subject: AlertSubject) -> Iterator[str]:
    for compared in view.benchmarks:
        if compared.benchmark == subject.name:
            for example in compared.lost:
                if subject.subset in ("", example.subset):
                    yield shortened(one_line(example.prompt), QUESTION_CHARS)
