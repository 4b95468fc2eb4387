"""Checkpoints evaluated after their successors: which verdicts are computed again, and what may change. Pure.

The newest checkpoint is evaluated first, so earlier ones may arrive later. A late checkpoint is compared with its own
past and sends no alert. Instead, the verdict on the newest one is computed again with one more checkpoint before it. It
replaces the one test that every checkpoint of the run has, so `policy.alpha` is shared as if all had come in order.
Those in between get the verdicts that they would have had, and send no alert.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from eval_jobs.types import EvalRecord
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import WORSE, Report, VerdictWord
from tracker.domain.regression.blocks import BLOCK
from tracker.domain.scores.series import settings_by_benchmark
from tracker.domain.verdicts.losses.incidents import is_of_series

NEAREST = BLOCK
"""Number of later checkpoints whose recent baseline contains the late one; further on, the peak changes little."""


def overtaken_by(record: EvalRecord, records: Iterable[EvalRecord]) -> tuple[EvalRecord, ...]:
    """Return the records that need new verdicts after `record`, by step: its nearest successors, and the newest.

    If training went back, later checkpoints of the abandoned branch have another past. `records` are in any order.
    """
    own, suite, known = record.plan.checkpoint, record.plan.suite.name, tuple(records)
    branches = branches_of((own, *(one.plan.checkpoint for one in known)))
    later: dict[int, EvalRecord] = {}
    for one in sorted(known, key=lambda r: (r.plan.checkpoint.step, r.plan.checkpoint.ready_at, r.finished_at)):
        other = one.plan.checkpoint
        if other.step > own.step and one.plan.suite.name == suite and branches.sees(other, own):
            later[other.step] = one
    found = tuple(later.values())
    if len(found) <= NEAREST:
        return found
    return (*found[:NEAREST], found[-1])


def not_yet_told(report: Report, later: Iterable[EvalRecord]) -> frozenset[tuple[str | int, ...]]:
    """Return the keys of the losses of a checkpoint whose `later` ones were evaluated with other settings so far.

    They may show that the loss is over: it raises an alert when the newest of them has the settings of the checkpoint.
    """
    found = set[tuple[str | int, ...]]()
    for record in later:
        settings = settings_by_benchmark(record)
        found.update(incident.key for incident in report.incidents if not is_of_series(incident, settings))
    return frozenset(found)


def rejudged(before: Report, after: Report) -> Report:
    """Return the new report, with what does not depend on other checkpoints' scores from `before`.

    Latency is kept too: it has its own level, of which every checkpoint has one share.
    """
    missing = {v.benchmark: v for v in before.verdicts if v.word is VerdictWord.MISSING}
    verdicts = tuple(missing.get(v.benchmark, v) for v in after.verdicts)
    return replace(after, verdicts=verdicts, latency=before.latency)


def withdrawn(
    incidents: Iterable[Incident], reports: Sequence[Report], settings: Sequence[Mapping[str, str]]
) -> tuple[Incident, ...]:
    """Return the open losses that no recomputed verdict since their alarm shows any more, ended as CORRECTED.

    `reports` are those of `overtaken_by`, recomputed, by step, and `settings` of each the series by benchmark. A loss
    is only withdrawn by verdicts of its series, and if they include every checkpoint since its alarm.
    """
    found = []
    present = {incident.key: incident for report in reports for incident in report.incidents}
    for stored in incidents:
        incident = present.get(stored.key, stored)
        if incident.closed_step is None and _is_withdrawn(incident, reports, settings):
            found.append(replace(incident, closed_step=reports[-1].step, closed_by=Closing.CORRECTED))
    return tuple(found)


def _is_withdrawn(incident: Incident, reports: Sequence[Report], settings: Sequence[Mapping[str, str]]) -> bool:
    since = _since_alarm(incident, reports, settings)
    is_whole = len(reports) <= NEAREST or len(since) == 1
    if not is_whole or not since or since[0].step != incident.opened_step:
        return False
    return not any(_shows(report, incident) for report in since)


def _since_alarm(incident: Incident, reports: Sequence[Report], settings: Sequence[Mapping[str, str]]) -> list[Report]:
    """Return the reports on checkpoints with the settings of the loss, from its alarm on."""
    found: list[Report] = []
    for report, own in zip(reports, settings, strict=True):
        if report.step < incident.opened_step:
            continue
        if _can_show(incident, own):
            found.append(report)
    return found


def _can_show(incident: Incident, settings: Mapping[str, str]) -> bool:
    names = set(incident.benchmarks) or {incident.benchmark}
    if names.isdisjoint(settings):
        return False  # it is not asked any more
    return is_of_series(incident, settings)


def with_corrected(incidents: Iterable[Incident], corrected: Sequence[Incident]) -> tuple[Incident, ...]:
    """Return the incidents with those that were corrected as they ended."""
    ended = {one.key: one for one in corrected}
    return tuple(ended.get(one.key, one) for one in incidents)


def _shows(report: Report, incident: Incident) -> bool:
    subject = (incident.benchmark, incident.subset, incident.measure)
    for verdict in (*report.verdicts, *report.findings):
        if (verdict.benchmark, verdict.subset, verdict.measure) == subject:
            return verdict.lost_since == incident.onset_step and (verdict.word in WORSE or not incident.benchmark)
    return False


def told_by_benchmark(report: Report) -> tuple[tuple[str, VerdictWord, str, tuple[float, ...]], ...]:
    """Return the verdict on every benchmark: its text, and the change of each comparison."""
    return tuple(
        (verdict.benchmark, verdict.word, reason_text(verdict), tuple(one.delta for one in verdict.comparisons))
        for verdict in report.verdicts
    )
