"""Checkpoints evaluated after their successors: which verdicts are computed again, and what may change. Pure.

The newest checkpoint is evaluated first, so earlier ones may arrive later. A late checkpoint is compared with its own
past and sends no alert. Instead, the verdict on the newest one is computed again with one more checkpoint before it. It
replaces the one test that every checkpoint of the run has, so `policy.alpha` is shared as if all had come in order.
Those in between get the verdicts that they would have had, and send no alert. A loss ends at the first checkpoint that
shows its end, also if that one comes late.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from eval_jobs.types import EvalRecord
from tracker.domain.records.branches import branches_of
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import WORSE, Report, Verdict, VerdictWord
from tracker.domain.regression.blocks import BLOCK
from tracker.domain.scores.run_scores import RunScores
from tracker.domain.scores.series import settings_by_benchmark
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge
from tracker.domain.verdicts.losses.incidents import is_of_series, subject_of

_OVER = (Closing.TRANSIENT, Closing.RECOVERED)

NEAREST = BLOCK
"""Number of later checkpoints whose recent baseline contains the late one; further on, the peak changes little."""


def overtaken_by(
    record: EvalRecord, records: Iterable[EvalRecord], incidents: Iterable[Incident] = ()
) -> tuple[EvalRecord, ...]:
    """Return the records that need new verdicts after `record`, by step: its nearest successors, and the newest.

    And those at which one of `incidents` ended, which it may end earlier. If training went back, later checkpoints of
    the abandoned branch have another past. `records` are in any order.
    """
    own, suite, known = record.plan.checkpoint, record.plan.suite.name, tuple(records)
    branches = branches_of((own, *(one.plan.checkpoint for one in known)))
    later: dict[int, EvalRecord] = {}
    for one in sorted(known, key=lambda r: (r.plan.checkpoint.step, r.plan.checkpoint.ready_at, r.finished_at)):
        other = one.plan.checkpoint
        if other.step > own.step and one.plan.suite.name == suite and branches.sees(other, own):
            later[other.step] = one
    found = tuple(later.values())
    return (*found[:NEAREST], *_where_ended(found[NEAREST:-1], incidents), *found[NEAREST:][-1:])


def _where_ended(records: Iterable[EvalRecord], incidents: Iterable[Incident]) -> Iterator[EvalRecord]:
    ends = {incident.closed_step for incident in incidents}
    for one in records:
        if one.plan.checkpoint.step in ends:
            yield one


def before_it(record: EvalRecord, records: Iterable[EvalRecord]) -> EvalRecord | None:
    """Return the newest of `records` on the checkpoint before that of `record`; None: it is the first."""
    own, known = record.plan.checkpoint, tuple(records)
    branches = branches_of((own, *(one.plan.checkpoint for one in known)))
    found: EvalRecord | None = None
    for one in sorted(known, key=lambda r: (r.plan.checkpoint.step, r.plan.checkpoint.ready_at, r.finished_at)):
        other = one.plan.checkpoint
        if other.step < own.step and one.plan.suite.name == record.plan.suite.name and branches.sees(own, other):
            found = one
    return found


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The checkpoints whose verdicts one that was evaluated late may change."""

    before: EvalRecord | None = None
    """The newest record of the checkpoint before it, if that one shows a loss; None: it is the newest itself."""
    later: tuple[EvalRecord, ...] = ()
    """Those of `overtaken_by`."""

    def to_judge_again(self, report: Report) -> tuple[EvalRecord, ...]:
        """Return by step the records that need new verdicts after `report` on the checkpoint itself."""
        if self.before is None:
            return self.later
        step = self.before.plan.checkpoint.step
        is_changed = any(incident.opened_step == step for incident in report.incidents)
        return (self.before, *self.later) if is_changed else self.later


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


def moved(incidents: Iterable[Incident], reports: Sequence[Report]) -> tuple[Incident, ...]:
    """Return the losses in recomputed `reports` whose first checkpoint is another one than in `incidents`."""
    onsets = {one.key: one.onset_step for one in incidents}
    present = {one.key: one for report in reports for one in report.incidents}
    return tuple(one for key, one in present.items() if onsets.get(key, one.onset_step) != one.onset_step)


def settled(report: Report, renewed: Sequence[Report], incidents: Sequence[Incident]) -> Report:
    """Return the report on a late checkpoint without names of losses that, by the `renewed` ones, begin elsewhere."""
    gone = moved(incidents, renewed)
    if not gone:
        return report
    known = with_changes(incidents, gone)
    onsets = {(one.benchmark, one.subset, one.measure, one.onset_step) for one in known}

    def named(verdict: Verdict) -> Verdict:
        place = (verdict.benchmark, verdict.subset, verdict.measure, verdict.lost_since)
        return verdict if place in onsets else replace(verdict, lost_since=None)

    verdicts, findings = tuple(map(named, report.verdicts)), tuple(map(named, report.findings))
    return replace(report, verdicts=verdicts, findings=findings)


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


def with_changes(incidents: Iterable[Incident], changes: Iterable[Incident]) -> tuple[Incident, ...]:
    """Return the incidents as they are after changes, ordered by `opened_step`."""
    known = {one.key: one for one in (*incidents, *changes)}
    return tuple(sorted(known.values(), key=lambda one: one.opened_step))


@dataclass(frozen=True, kw_only=True)
class Judging:
    """What the verdicts of a run are computed from."""

    scores: RunScores
    run_context: RunContext
    policy: Policy
    now: datetime

    def knowing(self, changes: Iterable[Incident], *, opens_late: bool = False) -> "Judging":
        """Return the same after changes of incidents."""
        incidents = with_changes(self.run_context.incidents, changes)
        return replace(self, run_context=replace(self.run_context, incidents=incidents, opens_late=opens_late))

    def judged(self, record: EvalRecord) -> Report:
        """Return the report on a record."""
        return judge(record, self.scores, self.run_context, self.policy, now=self.now)


def with_passed_losses(report: Report, record: EvalRecord, neighbours: Neighbours, judging: Judging) -> Report:
    """Return the report on a checkpoint with the losses that later ones show to be over.

    They are those that it shows itself, and those of the checkpoint before it, as with a benchmark that was added. A
    loss that lasts is opened by the newest checkpoint.
    """
    if not neighbours.later:
        return report
    passed: tuple[Incident, ...] = ()
    if neighbours.before is not None:
        passed = _passed_losses(neighbours.before, judging)
        judging = judging.knowing(passed)
        report = judging.judged(record)
    if shows_loss(report):
        own = _passed_losses(record, judging)
        passed = (*passed, *own)
        report = judging.knowing(own).judged(record)
    return replace(report, incidents=(*passed, *report.incidents))


def shows_loss(report: Report) -> bool:
    """Return whether anything is worse at a checkpoint."""
    return not WORSE.isdisjoint(verdict.word for verdict in (*report.verdicts, *report.findings))


def _passed_losses(record: EvalRecord, judging: Judging) -> tuple[Incident, ...]:
    """Return the losses that `record` would have opened, as later ones end them; of those that last, what is known.

    A known loss that lasts began where `record` shows it. () if one lasts that is not known, or if only a part ends.
    """
    known = judging.run_context.incidents
    opened = judging.knowing((), opens_late=True).judged(record).incidents
    trial = judging.knowing(opened)
    later = overtaken_by(record, judging.run_context.records, known)
    for one in later:
        trial = trial.knowing(trial.judged(one).incidents)
    new = {incident.key for incident in opened} - {incident.key for incident in known}
    found = tuple(one for one in trial.run_context.incidents if one.key in new)
    if all(one.closed_by in _OVER for one in found):
        return found
    if any(one.closed_step is not None for one in found):
        return ()
    # One that the newest checkpoint opens begins where its own verdict says.
    newest = later[-1].plan.checkpoint.step
    return _begun_earlier(found, [one for one in known if one.opened_step < newest])


def _begun_earlier(found: Iterable[Incident], known: Sequence[Incident]) -> tuple[Incident, ...]:
    """Return the open losses of `known` that began where those in `found` did."""
    earlier: list[Incident] = []
    for one in found:
        for loss in known:
            is_same = (subject_of(loss), loss.series) == (subject_of(one), one.series)
            if is_same and loss.closed_step is None and loss.onset_step > one.onset_step:
                earlier.append(replace(loss, onset_step=one.onset_step))
    return tuple(earlier)


def _shows(report: Report, incident: Incident) -> bool:
    subject = (incident.benchmark, incident.subset, incident.measure)
    for verdict in (*report.verdicts, *report.findings):
        if (verdict.benchmark, verdict.subset, verdict.measure) == subject:
            return verdict.lost_since == incident.onset_step and (verdict.word in WORSE or not incident.benchmark)
    return False


def told_by_benchmark(report: Report) -> tuple[tuple[str, VerdictWord, str, int | None, tuple[float, ...]], ...]:
    """Return the verdict on every benchmark: its text, where its loss began, and the change of each comparison."""
    found = []
    for verdict in report.verdicts:
        changes = tuple(one.delta for one in verdict.comparisons)
        found.append((verdict.benchmark, verdict.word, reason_text(verdict), verdict.lost_since, changes))
    return tuple(found)
