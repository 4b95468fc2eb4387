"""A history in memory."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from eval_jobs.identity import content_hash
from eval_jobs.records.changes import ChangeKind
from eval_jobs.types import EvalRecord, EvalResult, Outcome
from tests.fakes.event_log import FakeEventLog
from tests.fakes.health import FakeHealth
from tests.records import outlined, without_samples
from tracker.adapters.database.codec import stored_step
from tracker.domain.log.events import RunEvent, acceptance_event, alert_events, unevaluated
from tracker.domain.records.alerts import Alert, AlertState
from tracker.domain.records.calibration import Calibration
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.records.types import Gap, Report
from tracker.domain.scores.run_scores import RunScores, with_record
from tracker.domain.scores.sample_columns import columns_of
from tracker.domain.scores.series_changes import SeriesChange


class FakeHistory(FakeHealth, FakeEventLog):
    """`tracker.ports.History` without a disk."""

    def __init__(self) -> None:
        super().__init__()
        FakeEventLog.__init__(self)
        self._records: dict[str, EvalRecord] = {}
        self._reports: dict[str, Report] = {}
        self._incidents: dict[tuple[object, ...], Incident] = {}
        self._acceptances: dict[tuple[str, int, str, str], Acceptance] = {}
        self._series_changes: dict[object, SeriesChange] = {}
        self._calibrations: dict[str, Calibration] = {}
        self._gaps: dict[tuple[str, int, str], Gap] = {}
        self._alerts: dict[str, Alert] = {}
        self._scores: dict[object, tuple[RunScores, dict[str, EvalRecord]]] = {}
        """What was asked before, with the records in it: a tick asks four times."""

    def damaged(self) -> tuple[str, ...]:
        return ()

    def append(self, record: EvalRecord) -> None:
        self._records[record.plan.id] = record
        self.note(ChangeKind.EVALUATION, record.plan.checkpoint.run_id, record.plan.id)

    def record(self, plan_id: str, benchmarks: Collection[str] | None = None) -> EvalRecord | None:
        record = self._records.get(plan_id)
        if record is None or benchmarks is None:
            return record
        bare = without_samples(record).outcomes
        outcomes = (o if o.benchmark in benchmarks else b for o, b in zip(record.outcomes, bare, strict=True))
        return replace(record, outcomes=tuple(outcomes))

    def bare_record(self, plan_id: str) -> EvalRecord | None:
        record = self._records.get(plan_id)
        return None if record is None else without_samples(record)

    def records(self, run_id: str) -> tuple[EvalRecord, ...]:
        return tuple(without_samples(record) for record in self._of_run(run_id))

    def scores(
        self, run_id: str, measures: tuple[Measure, ...] = tuple(Measure), steps: Collection[int] | None = None
    ) -> RunScores:
        key = (run_id, measures, None if steps is None else frozenset(steps))
        nothing: tuple[RunScores, dict[str, EvalRecord]] = (RunScores(run_id=run_id, measures=measures), {})
        scores, held = self._scores.get(key, nothing)
        wanted = {r.plan.id: r for r in self._of_run(run_id) if steps is None or r.plan.checkpoint.step in steps}
        if any(wanted.get(plan_id) is not record for plan_id, record in held.items()):
            scores, held = nothing
        for record in wanted.values():
            if record.plan.id not in held:
                results = (o for o in record.outcomes if isinstance(o, EvalResult))
                scores = with_record(scores, record, {o.benchmark: columns_of(o.samples) for o in results})
        self._scores[key] = (scores, wanted)
        return scores

    def texts(self, run_id: str) -> Mapping[str, int]:
        sizes = {r.plan.id: sum(map(_size_of, r.outcomes)) for r in self._of_run(run_id)}
        return {plan_id: size for plan_id, size in sizes.items() if size}

    def forget_texts(self, plan_id: str) -> None:
        record = self._records.get(plan_id)
        if record is not None:
            self._records[plan_id] = replace(record, outcomes=tuple(map(_without_texts, record.outcomes)))

    def append_reports(self, *reports: Report, events: Iterable[RunEvent] = ()) -> None:
        for report in reports:
            self._reports[report.plan_id] = report
            self.note(ChangeKind.EVALUATION, report.run_id, report.plan_id)
            for incident in report.incidents:
                self.append_incident(incident)
        self.log(events)

    def report(self, plan_id: str) -> Report | None:
        return self._reports.get(plan_id)

    def reports(self, run_id: str) -> tuple[Report, ...]:
        found = [r for r in self._reports.values() if r.run_id == run_id]
        return tuple(sorted(found, key=lambda r: (r.step, r.created_at, r.plan_id)))

    def outlines(self, run_id: str) -> tuple[Report, ...]:
        return outlined(self.reports(run_id))

    def append_incident(self, incident: Incident) -> None:
        e = incident
        known = self._incidents.get(e.key)
        if known is None or known.closed_by is not Closing.ACCEPTED or e.closed_by is Closing.ACCEPTED:
            self._incidents[e.key] = e
            self.note(ChangeKind.LOSS, e.run_id, content_hash([*e.key]))

    def incidents(self, run_id: str) -> tuple[Incident, ...]:
        found = [e for e in self._incidents.values() if e.run_id == run_id]
        return tuple(sorted(found, key=lambda e: (e.opened_step, e.benchmark, e.subset, e.suite, e.measure)))

    def append_acceptance(self, acceptance: Acceptance) -> None:
        key = (acceptance.run_id, acceptance.step, acceptance.benchmark, acceptance.series)
        self._acceptances[key] = acceptance
        self.log([acceptance_event(acceptance)])

    def acceptances(self, run_id: str) -> tuple[Acceptance, ...]:
        found = [a for a in self._acceptances.values() if a.run_id == run_id]
        return tuple(sorted(found, key=lambda a: (a.step, a.benchmark)))

    def append_series_change(self, change: SeriesChange) -> None:
        self._series_changes[change.run_id, change.suite, change.benchmark, change.at] = change

    def series_changes(self, run_id: str) -> tuple[SeriesChange, ...]:
        found = [c for c in self._series_changes.values() if c.run_id == run_id]
        return tuple(sorted(found, key=lambda c: (c.at, c.suite, c.benchmark)))

    def append_calibration(self, calibration: Calibration) -> None:
        self._calibrations[calibration.plan.id] = calibration

    def calibrations(self) -> tuple[Calibration, ...]:
        return tuple(sorted(self._calibrations.values(), key=lambda c: (c.finished_at, c.plan.id)))

    def append_gap(self, gap: Gap) -> bool:
        key = (gap.run_id, gap.step, gap.code)
        is_new = key not in self._gaps
        if is_new:
            self._gaps[key] = gap
            self.note(ChangeKind.GAP, gap.run_id, content_hash([*key]))
            self.log([unevaluated(gap)])
        return is_new

    def gaps(self, run_id: str) -> tuple[Gap, ...]:
        found = [g for g in self._gaps.values() if g.run_id == run_id]
        return tuple(sorted(found, key=lambda g: (g.step, g.code)))

    def append_alert(self, alert: Alert) -> None:
        self.log(alert_events(alert, self._alerts.get(alert.fingerprint)))
        self._alerts[alert.fingerprint] = alert
        self.note(ChangeKind.ALERT, alert.run_id, alert.fingerprint)

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.alerts(run_id) if alert.state is AlertState.FIRING)

    def alerts(self, run_id: str) -> tuple[Alert, ...]:
        found = [alert for alert in self._alerts.values() if alert.run_id == run_id]
        return tuple(sorted(found, key=lambda a: (stored_step(a), a.fingerprint)))

    def runs(self) -> tuple[str, ...]:
        named = {r.plan.checkpoint.run_id for r in self._records.values()} | {g.run_id for g in self._gaps.values()}
        return tuple(sorted(named))

    def _of_run(self, run_id: str) -> list[EvalRecord]:
        found = [r for r in self._records.values() if r.plan.checkpoint.run_id == run_id]
        return sorted(found, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id))


def _size_of(outcome: Outcome) -> int:
    if not isinstance(outcome, EvalResult) or not outcome.has_texts:
        return 0
    return sum(1 + len(sample.answer) for sample in outcome.samples)


def _without_texts(outcome: Outcome) -> Outcome:
    if not isinstance(outcome, EvalResult):
        return outcome
    bare = tuple(replace(sample, answer="", detail="") for sample in outcome.samples)
    return replace(outcome, samples=bare, has_texts=False)
