"""A history in memory."""

from __future__ import annotations

from eval_jobs.types import EvalRecord
from tests.records import without_texts
from tracker.domain.types import Alert, AlertState, Gap, Report


class FakeHistory:
    """`tracker.ports.History` without a disk."""

    def __init__(self) -> None:
        self._records: dict[str, EvalRecord] = {}
        self._reports: dict[str, Report] = {}
        self._gaps: dict[tuple[str, int, str], Gap] = {}
        self._alerts: dict[str, Alert] = {}

    def append(self, record: EvalRecord) -> None:
        self._records[record.plan.id] = record

    def record(self, plan_id: str) -> EvalRecord | None:
        return self._records.get(plan_id)

    def find_record(self, run_id: str, step: int) -> EvalRecord | None:
        found = [r for r in self._of_run(run_id) if r.plan.checkpoint.step == step]
        return found[-1] if found else None

    def trajectory(self, run_id: str) -> tuple[EvalRecord, ...]:
        return tuple(without_texts(record) for record in self._of_run(run_id))

    def append_report(self, report: Report) -> None:
        self._reports[report.plan_id] = report

    def reports(self, run_id: str) -> tuple[Report, ...]:
        found = [r for r in self._reports.values() if r.run_id == run_id]
        return tuple(sorted(found, key=lambda r: (r.step, r.created_at, r.plan_id)))

    def append_gap(self, gap: Gap) -> bool:
        key = (gap.run_id, gap.step, gap.code)
        is_new = key not in self._gaps
        self._gaps.setdefault(key, gap)
        return is_new

    def gaps(self, run_id: str) -> tuple[Gap, ...]:
        found = [g for g in self._gaps.values() if g.run_id == run_id]
        return tuple(sorted(found, key=lambda g: (g.step, g.code)))

    def append_alert(self, alert: Alert) -> None:
        self._alerts[alert.fingerprint] = alert

    def open_alerts(self, run_id: str) -> tuple[Alert, ...]:
        found = [a for a in self._alerts.values() if a.run_id == run_id and a.state is AlertState.FIRING]
        return tuple(sorted(found, key=lambda a: (a.step, a.fingerprint)))

    def runs(self) -> tuple[str, ...]:
        named = {r.plan.checkpoint.run_id for r in self._records.values()} | {g.run_id for g in self._gaps.values()}
        return tuple(sorted(named))

    def _of_run(self, run_id: str) -> list[EvalRecord]:
        found = [r for r in self._records.values() if r.plan.checkpoint.run_id == run_id]
        return sorted(found, key=lambda r: (r.plan.checkpoint.step, r.finished_at, r.plan.id))
