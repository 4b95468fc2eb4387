"""Tables from records: checkpoints, losses, forgetting, latency, costs and alerts. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from eval_jobs.records.probe import RequestTiming
from eval_jobs.records.run_scope import is_of
from eval_jobs.types import EvalRecord, Percentiles, ProbeResult, ReferenceProbe
from tracker.domain.log.events import RunEvent
from tracker.domain.overview.costs import asked_by
from tracker.domain.records.alerts import Alert, SubjectKind
from tracker.domain.records.loss_text import Series, series_number_of
from tracker.domain.records.losses import Acceptance, Closing, Drop, Incident
from tracker.domain.records.types import Gap, Report, VerdictWord
from tracker.domain.tables.catalog import CHECKPOINTS, COSTS, FORGETTING, LATENCY, LOSSES, REQUESTS, RUNS
from tracker.domain.tables.columns import Rows, TableDefinition
from tracker.domain.tables.followed import ALERTS, CURVES, INCIDENTS, LOG, POINTS, PROGRESS
from tracker.domain.tables.selection import StoredEvaluation

if TYPE_CHECKING:  # slow to import, and most tables need none of it
    from tracker.domain.forgetting.types import LedgerRow, RunLedger
    from tracker.domain.health.stored import RunProgress
    from tracker.domain.records.training import TrainingIncident

_URGENCY = {word: place for place, word in enumerate(VerdictWord)}


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """What belongs to some runs."""

    evaluations: Iterable[StoredEvaluation]
    gaps: Iterable[Gap]
    """Of steps that were not evaluated after all."""
    incidents: Iterable[Incident]
    alerts: Iterable[Alert]
    """Firing ones."""
    plans: Mapping[tuple[str, str], int]
    """Evaluations in the queue by run and state."""
    output_dirs: Mapping[str, str]
    """By the run of the watcher, which may have sub-folders as runs of their own."""
    headlines: Mapping[str, str]
    """By run; those that are not asked for are left out."""
    best_steps: Mapping[str, int]
    """The same."""


def runs_table(runs: Iterable[str], parts: RunParts) -> Rows:
    """Return the table `runs`."""
    judged: dict[str, list[StoredEvaluation]] = defaultdict(list)
    for one in parts.evaluations:
        judged[one.run_id].append(one)
    gaps = Counter(gap.run_id for gap in parts.gaps for _ in gap.steps)
    losses = Counter(incident.run_id for incident in parts.incidents if incident.closed_step is None)
    firing = Counter(alert.run_id for alert in parts.alerts)
    rows: list[dict[str, object]] = []
    for run in runs:
        steps = {one.step for one in judged[run]}
        counts = {
            "waiting": parts.plans.get((run, "waiting"), 0),
            "running": parts.plans.get((run, "running"), 0),
            "checkpoints": len(steps),
            "gaps": gaps[run],
            "losses_open": losses[run],
            "alerts_firing": firing[run],
        }
        ends = {
            "first_step": min(steps, default=None),
            "last_step": max(steps, default=None),
            "best_step": parts.best_steps.get(run),
        }
        times = filter(None, (one.finished_at for one in judged[run]))
        texts = {"headline": parts.headlines.get(run, ""), "output_dir": _output_dir(run, parts.output_dirs)}
        rows.append({"run": run, **counts, **ends, **texts, "last_at": max(times, default=None)})
    return _sorted(RUNS, rows)


def _output_dir(run: str, known: Mapping[str, str]) -> str:
    for watched, folder in known.items():
        if is_of(run, watched):
            return f"{folder}{run.removeprefix(watched)}"
    return ""


def checkpoints_table(
    evaluations: Sequence[StoredEvaluation], words: Mapping[int, VerdictWord], left: frozenset[int], gaps: Iterable[Gap]
) -> Rows:
    """Return the table `checkpoints`.

    Args:
        evaluations: all of the runs.
        words: the most urgent verdict of each, by its number.
        left: numbers of those of checkpoints that training left behind.
        gaps: those of steps that were not evaluated after all.
    """
    contents: dict[tuple[str, int, str], list[StoredEvaluation]] = defaultdict(list)
    for one in evaluations:
        contents[one.run_id, one.step, one.digest].append(one)
    rows = [_of_content(same, words, left) for same in contents.values()]
    for gap in gaps:
        rows += (_of_gap(gap, step) for step in gap.steps)
    return _sorted(CHECKPOINTS, rows)


def losses_table(
    incidents: Iterable[Incident], acceptances: Iterable[Acceptance], series: Mapping[str, Series]
) -> Rows:
    """Return the table `losses`; `series`: of each run. Losses of one checkpoint alone are only in it once ended."""
    reasons = {(a.run_id, a.benchmark, a.step): a.reason for a in acceptances}
    rows: list[dict[str, object]] = []
    for one in incidents:
        is_accepted = one.closed_by is Closing.ACCEPTED
        reason = reasons.get((one.run_id, one.benchmark, one.closed_step or 0), "") if is_accepted else ""
        number = series_number_of(one, series.get(one.run_id, {})) if one.benchmark else None
        own = {"run": one.run_id, "closed_by": one.closed_by or "", "reason": reason, "series": number}
        rows.append({**dict.fromkeys(LOSSES.names), **_fields_of(one, LOSSES), **_numbers_of(one.drop), **own})
    return _sorted(LOSSES, rows)


def _numbers_of(drop: Drop | None) -> dict[str, object]:
    if drop is None:
        return {}
    steps = {"baseline_first": drop.baseline_steps[0], "baseline_last": drop.baseline_steps[-1]}
    return {**_fields_of(drop, LOSSES), **steps, "newest_step": drop.newest_steps[-1]}


def forgetting_table(ledgers: Iterable[RunLedger], *, subsets: bool) -> Rows:
    """Return the table `forgetting`; `subsets`: also of each subset."""
    rows: list[dict[str, object]] = []
    for ledger in ledgers:
        for one in ledger.benchmarks:
            for row in (one.whole, *(one.subsets if subsets else ())):
                own = {"run": ledger.run_id, "benchmark": one.benchmark, "subset": row.subset}
                rows.append({**_forgotten(row), **own, "samples": row.samples})
    return _sorted(FORGETTING, rows)


def curves_table(points: Iterable[tuple[str, int, str, float]]) -> Rows:
    """Return the table `curves` of (run, step, key, value)."""
    columns = list(zip(*sorted(points), strict=True)) or [()] * len(CURVES.names)
    return dict(zip(CURVES.names, columns, strict=True))


def points_table(points: Iterable[tuple[str, int, str, float]]) -> Rows:
    """Return the table `points` of (run, step, key, value)."""
    columns = list(zip(*points, strict=True)) or [()] * len(POINTS.names)
    return dict(zip(POINTS.names, columns, strict=True))


def training_incidents_table(incidents: Iterable[TrainingIncident]) -> Rows:
    """Return the table `incidents`."""
    rows: list[dict[str, object]] = []
    for one in incidents:
        cause = {"class": one.name, "step": one.cause.step, "text": one.cause.text}
        own = {"run": one.run_id, "is_alert": one.is_alert, "ended_by": one.ended_by or ""}
        rows.append({**_fields_of(one, INCIDENTS), **cause, **own})
    return _sorted(INCIDENTS, rows)


def progress_table(progress: Iterable[RunProgress]) -> Rows:
    """Return the table `progress`."""
    return _sorted(PROGRESS, [{**_fields_of(one, PROGRESS), "run": one.run_id} for one in progress])


def latency_table(records: Iterable[EvalRecord], reports: Iterable[Report]) -> Rows:
    """Return the table `latency`."""
    words: dict[tuple[str, str], VerdictWord] = {}
    for report in reports:
        for verdict in report.latency:
            key = report.plan_id, verdict.load
            words[key] = min(words.get(key, verdict.word), verdict.word, key=_URGENCY.__getitem__)
    rows = [row for record in records for row in _loads(record, words)]
    return _sorted(LATENCY, rows)


def costs_table(records: Iterable[EvalRecord]) -> Rows:
    """Return the table `costs`; imported results have no costs."""
    rows: list[dict[str, object]] = []
    for record in records:
        cost = record.cost
        if cost is not None:
            checkpoint, plan = record.plan.checkpoint, record.plan
            own = {"run": checkpoint.run_id, "step": checkpoint.step, "suite": plan.suite.name, "plan_id": plan.id}
            times = {"started_at": record.started_at, "finished_at": record.finished_at}
            rows.append({**_fields_of(cost, COSTS), **own, **times, "asked": asked_by(plan)})
    return _sorted(COSTS, rows)


def requests_table(records: Iterable[EvalRecord]) -> Rows:
    """Return the table `requests`: of a test with a reference, both sides; else those of the test."""
    rows: list[dict[str, object]] = []
    for record in records:
        checkpoint = record.plan.checkpoint
        for load, side, requests in _sides(record):
            own = {"run": checkpoint.run_id, "step": checkpoint.step, "load": load, "side": side}
            for request in requests:
                rows.append({**own, **_fields_of(request, REQUESTS)})
    return _sorted(REQUESTS, rows)


def alerts_table(alerts: Iterable[Alert]) -> Rows:
    """Return the table `alerts`."""
    rows: list[dict[str, object]] = []
    for alert in alerts:
        of_benchmark = alert.subject.name if alert.subject.kind is SubjectKind.BENCHMARK else ""
        own = {"run": alert.run_id, "benchmark": of_benchmark, "since": alert.raised_at}
        rows.append({**_fields_of(alert, ALERTS), **own})
    return _sorted(ALERTS, rows)


def run_log_table(events: Iterable[RunEvent]) -> Rows:
    """Return the table `log`."""
    return _sorted(LOG, [{**_fields_of(event, LOG), "run": event.run_id} for event in events])


def _forgotten(row: LedgerRow) -> dict[str, object]:
    nothing: dict[str, object] = dict.fromkeys(FORGETTING.names)
    scores = [mean for mean in row.means if mean is not None]
    values = {**nothing, "now": scores[-1] if scores else None}
    if row.forgetting is not None:
        found = row.forgetting
        values |= _fields_of(found, FORGETTING)
        values |= {"peak": found.peak.mean, "now": found.last.mean}
        values |= {"peak_first": found.peak.first_step, "peak_last": found.peak.last_step}
    if row.flow is not None:
        values |= {**_fields_of(row.flow, FORGETTING), "lost_by_chance": row.flow.expected_false}
    return values


def _sides(record: EvalRecord) -> Iterator[tuple[str, str, Sequence[RequestTiming]]]:
    paired = {probe.load.name: probe for probe in record.reference_probes if isinstance(probe, ReferenceProbe)}
    for probe in record.probes:
        name = probe.load.name
        if name in paired:
            yield name, "candidate", paired[name].candidate
            yield name, "reference", paired[name].reference
        elif isinstance(probe, ProbeResult):
            yield name, "candidate", probe.requests


def _of_content(
    same: Sequence[StoredEvaluation], words: Mapping[int, VerdictWord], left: frozenset[int]
) -> dict[str, object]:
    newest = max(same, key=lambda e: (e.judged_at is not None, e.judged_at or e.ready_at))
    found = [words[e.number] for e in same if e.number in words]
    return {
        **_fields_of(newest, CHECKPOINTS),
        "run": newest.run_id,
        "source": newest.source_uri,
        "pin": newest.uri,
        "gap": "",
        "reason": "" if newest.judged_at is not None else "evaluated, but not judged yet",
        "word": min(found, key=_URGENCY.__getitem__, default=None),
        "left_behind": newest.number in left,
    }


def _of_gap(gap: Gap, step: int) -> dict[str, object]:
    nothing: dict[str, object] = dict.fromkeys(CHECKPOINTS.names)
    known = {"run": gap.run_id, "step": step, "source": gap.source_uri, "gap": gap.code, "reason": gap.message}
    return {**nothing, "left_behind": False, **known}


def _loads(record: EvalRecord, words: Mapping[tuple[str, str], VerdictWord]) -> Iterator[dict[str, object]]:
    checkpoint, plan_id = record.plan.checkpoint, record.plan.id
    for probe in record.probes:
        row: dict[str, object] = dict.fromkeys(LATENCY.names)
        if isinstance(probe, ProbeResult):
            row |= {"failure": "", **dict(_times(probe))}
        else:
            row |= {"failure": probe.code, "completed": 0, "failed": 0}
        row |= {"run": checkpoint.run_id, "step": checkpoint.step, "load": probe.load.name, "plan_id": plan_id}
        yield {**row, "word": words.get((plan_id, probe.load.name))}


def _times(probe: ProbeResult) -> Iterator[tuple[str, object]]:
    yield from _fields_of(probe, LATENCY).items()
    metrics: dict[str, Percentiles | None] = {
        "ttft": probe.ttft_ms,
        "tpot": probe.tpot_ms,
        "itl": probe.itl_ms,
        "e2e": probe.e2e_ms,
    }
    for metric, percentiles in metrics.items():
        for name in ("p50", "p90", "p95", "p99", "mean"):
            yield f"{metric}_{name}_ms", None if percentiles is None else getattr(percentiles, name)


def _fields_of(record: object, table: TableDefinition) -> dict[str, object]:
    return {name: getattr(record, name) for name in table.names if hasattr(record, name)}


def _sorted(table: TableDefinition, rows: Sequence[Mapping[str, object]]) -> Rows:
    leading = table.names[:5]
    ordered = sorted(rows, key=lambda row: [_sort_key(row[name]) for name in leading])
    return {name: [row[name] for row in ordered] for name in table.names}


def _sort_key(value: object) -> tuple[bool, int, str]:
    if isinstance(value, int):
        return True, value, ""
    if isinstance(value, datetime):
        return True, 0, value.isoformat()
    return value is not None, 0, "" if value is None else str(value)
