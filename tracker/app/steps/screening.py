"""Screening: which checkpoints are evaluated in full from the start, and which because of their screen.

checkpoint -> screen plan -> record -> report -> (rest plan -> record -> report): nothing flows back.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from eval_jobs.errors import StoreError
from eval_jobs.identity import rest_plan, screen_plan
from eval_jobs.ports import PlanQueue
from eval_jobs.run import accounted
from eval_jobs.types import EvalPlan, EvalRecord, ScreenPart
from tracker.domain.best.retention import identity_of
from tracker.domain.records.types import Report
from tracker.domain.verdicts.screening import (
    Screening,
    is_screen,
    joined,
    neighbours_to_ask,
    references_of_screens,
    to_ask_whole,
)
from tracker.ports import RecordStore


@dataclass(kw_only=True)
class ScreeningSchedule:
    """Which steps of a run were planned in full; a restarted watcher rebuilds it from the history and its source."""

    whole: dict[int, bool] = field(default_factory=dict)
    """Planned steps -> whether the checkpoint was evaluated in full from the start."""

    def is_due(self, step: int, screening: Screening) -> bool:
        """Return whether the settings demand a full evaluation of the checkpoint of this step."""
        earlier = [self.whole[known] for known in sorted(self.whole) if known < step]
        since = next((at for at, is_whole in enumerate(reversed(earlier)) if is_whole), len(earlier))
        return len(earlier) < screening.first or since + 1 >= screening.every


def scheduled_plans(
    plans: Sequence[EvalPlan], screening: Screening, queue: PlanQueue, schedule: ScreeningSchedule, *, keep: bool
) -> tuple[EvalPlan, ...]:
    """Return the first plans of a checkpoint: `plans`, or their screens. An earlier choice is kept.

    The choice is added to `schedule`, that of the run; `keep`: evaluate the checkpoint in full in any case.
    """
    step = plans[0].checkpoint.step
    screens = tuple(screen_plan(plan, screening.screen) for plan in plans)
    known = queue.known([plan.id for plan in (*plans, *screens)])
    if known:
        chosen = tuple(whole if whole.id in known else part for whole, part in zip(plans, screens, strict=True))
    elif keep or schedule.is_due(step, screening):
        chosen = tuple(plans)
    else:
        chosen = screens
    schedule.whole[step] = chosen[0] is plans[0]
    return chosen


def schedule_of(history: RecordStore, run_id: str) -> ScreeningSchedule:
    """Return the schedule of a run from its history."""
    whole: dict[int, bool] = {}
    for record in history.records(run_id):
        step = record.plan.checkpoint.step
        whole[step] = whole.get(step, False) or record.plan.suite.part is None
    return ScreeningSchedule(whole=whole)


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The newest report on a checkpoint and the one that it replaces; None: it is the first one."""

    newest: Report
    before: Report | None = None

    @property
    def newly_suspicious(self) -> tuple[str, ...]:
        """Return the screened benchmarks whose rest no earlier report has asked for: it may still be queued."""
        asked = () if self.before is None else to_ask_whole(self.before)
        return tuple(name for name in to_ask_whole(self.newest) if name not in asked)


def plans_of_rest(
    record: EvalRecord, reports: Reports, records: Iterable[EvalRecord], given_up: Collection[str]
) -> tuple[EvalPlan, ...]:
    """Return the plans of what screens left out: of this checkpoint, or of those that it is compared with.

    `records` of the run are without samples; `given_up`: `uri` of checkpoints whose weights were deleted.
    """
    own, report = reports.newly_suspicious, reports.newest
    known = tuple(r for r in records if r.plan.suite.name == record.plan.suite.name)
    there = tuple(r for r in known if r.plan.checkpoint.uri not in given_up)
    if is_screen(record.plan):
        if not own or record.plan.checkpoint.uri in given_up:
            return ()
        references = _references(report, known, there)
        return (rest_plan(record.plan, own), *chain.from_iterable(_rests_of(r, references, known) for r in there))
    wanted = {step: list(names) for step, names in neighbours_to_ask(report).items()}
    for step, names in _references(report, known, there).items():
        wanted.setdefault(step, []).extend(names)
    if own:
        wanted[report.step] = list(own)
    return tuple(chain.from_iterable(_rests_of(r, wanted, known) for r in there))


def whole_record(record: EvalRecord, history: RecordStore) -> EvalRecord:
    """Return the record itself or, for a rest, the joined record of both parts.

    If the screen is missing, the rest is useless: every benchmark of it becomes a failure.
    """
    part = record.plan.suite.part
    if part is None or not part.is_rest:
        return record
    before = _known_of(record, part, history)
    if before is not None:
        return joined(before, record)
    gone = StoreError("missing answers to the first part of the benchmark", hint="run `tracker evaluate` again")
    outcomes = tuple(accounted(benchmark, record.plan, gone) for benchmark in record.plan.suite.benchmarks)
    return replace(record, outcomes=outcomes)


def _references(
    report: Report, known: Sequence[EvalRecord], there: Sequence[EvalRecord]
) -> Mapping[int, Collection[str]]:
    """Return by step which benchmarks to evaluate in full so that each suspicious screen has one full reference.

    Only `there` of the `known` records have their weights.
    """
    screened = {record.plan.checkpoint.step for record in there if is_screen(record.plan)}
    wanted: dict[int, list[str]] = {}
    for name, steps in references_of_screens(report).items():
        if _whole_steps(name, known).isdisjoint(steps):
            for step in [step for step in steps if step in screened][:1]:
                wanted.setdefault(step, []).append(name)
    return wanted


def _whole_steps(benchmark: str, records: Iterable[EvalRecord]) -> set[int]:
    return {
        record.plan.checkpoint.step
        for record in records
        for result in record.results
        if result.benchmark == benchmark and not result.left_out
    }


def _rests_of(
    screen: EvalRecord, wanted: Mapping[int, Collection[str]], records: Sequence[EvalRecord]
) -> Iterator[EvalPlan]:
    step = screen.plan.checkpoint.step
    if is_screen(screen.plan) and step in wanted:
        # One plan per benchmark: if the next checkpoint needs it too, it has the same id and is evaluated once.
        for name in _left_out(screen, wanted[step], records):
            yield rest_plan(screen.plan, (name,))


def _left_out(screen: EvalRecord, wanted: Collection[str], records: Iterable[EvalRecord]) -> tuple[str, ...]:
    """Return which of these benchmarks were not evaluated in full at the checkpoint of a screen."""
    own, missing = identity_of(screen.plan.checkpoint), set(wanted)
    for record in records:
        if identity_of(record.plan.checkpoint) == own:
            missing -= {result.benchmark for result in record.results if not result.left_out}
    return tuple(result.benchmark for result in screen.results if result.benchmark in missing)


def _known_of(rest: EvalRecord, part: ScreenPart, history: RecordStore) -> EvalRecord | None:
    """Return the newest record of the same checkpoint that contains the screen: its own, or a joined one."""
    parts = (part, replace(part, is_rest=False))
    found = []
    for known in history.records(rest.plan.checkpoint.run_id):
        is_of_parts = known.plan.suite.part in parts and known.plan.id != rest.plan.id
        if is_of_parts and _subject(known.plan) == _subject(rest.plan):
            found.append(known)
    # If two rests ran at the same time, both joined records may have the end of the later one.
    newest = max(found, key=lambda r: (r.finished_at, -_unasked(r)), default=None)
    if newest is None:
        return None
    return history.record(newest.plan.id)


def _subject(plan: EvalPlan) -> tuple[int, str, str]:
    return plan.checkpoint.step, plan.checkpoint.digest, plan.suite.name


def _unasked(record: EvalRecord) -> int:
    return sum(o.left_out for o in record.results)
