"""Results and verdicts in narrow rows: what tables of thousands of checkpoints are made of, without their documents.

The rows of a plan are written with its record and with its report, in the transaction that stores the document.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, Table, delete, insert, select

from eval_jobs.identity import content_hash
from eval_jobs.queue.database_sql import insert_into
from eval_jobs.types import Checkpoint, CheckpointFormat, EvalRecord
from tracker.adapters.database.tables import EVALUATIONS, JUDGED, MEASURED, SUBJECTS
from tracker.domain.records.losses import Measure
from tracker.domain.records.reasons import Reason
from tracker.domain.records.types import Report, Screened, Verdict, VerdictWord
from tracker.domain.tables.results import JudgedRow, MeasuredRow, judged_rows, measured_rows

_REASON: TypeAdapter[Reason | None] = TypeAdapter(Reason | None)
_SCREENED: TypeAdapter[Screened | None] = TypeAdapter(Screened | None)
_OF_CHECKPOINT = ("run_id", "step", "uri", "source_uri", "format", "digest", "ready_at", "base_model")
_WORDS = {str(word): word for word in VerdictWord}


class _Subject(NamedTuple):
    """The columns of `SUBJECTS` that identify one."""

    benchmark: str
    subset: str = ""
    measure: Measure = Measure.SCORE
    metric: str = ""
    fingerprint: str = ""
    higher_is_better: bool = True


def put_record(connection: Connection, record: EvalRecord) -> None:
    """Replace the results of a plan by those of its record."""
    put_measured(connection, record, measured_rows(record))


def put_measured(connection: Connection, record: EvalRecord, rows: Sequence[MeasuredRow]) -> None:
    """Replace the results of a plan; those of a record without samples are known from elsewhere."""
    known = {"suite": record.plan.suite.name, "finished_at": record.finished_at}
    number = _put_evaluation(connection, record.plan.id, record.plan.checkpoint, known)
    subjects = [
        _Subject(
            benchmark=row.benchmark,
            metric=row.metric,
            fingerprint=row.fingerprint,
            higher_is_better=row.higher_is_better,
        )
        for row in rows
    ]
    _replace(connection, MEASURED, number, subjects, [_values(MEASURED, row) for row in rows])


def put_report(connection: Connection, report: Report) -> None:
    """Replace the verdicts of a plan by those of its report."""
    known = {"run_id": report.run_id, "judged_at": report.created_at, "rules_version": report.rules_version}
    number = _put_evaluation(connection, report.plan_id, report.checkpoint, known)
    rows = judged_rows(report)
    subjects = [_Subject(benchmark=row.benchmark, subset=row.subset, measure=row.measure) for row in rows]
    values = [_values(JUDGED, row) for row in rows]
    for one, row in zip(values, rows, strict=True):
        one["missing"] = None if row.missing is None else _REASON.dump_json(row.missing).decode()
        one["screened"] = None if row.screened is None else _SCREENED.dump_json(row.screened).decode()
    _replace(connection, JUDGED, number, subjects, values)


def outlines_of(connection: Connection, run_id: str) -> tuple[Report, ...]:
    """Return the reports of a run without their evidence, ordered by step.

    An outline has word, score, coverage, onset and screening of each benchmark, and why one is missing.
    """
    is_judged = (EVALUATIONS.c.run_id == run_id) & EVALUATIONS.c.judged_at.is_not(None)
    order = EVALUATIONS.c.step, EVALUATIONS.c.judged_at, EVALUATIONS.c.plan_id
    verdicts = _outlined(connection, run_id)
    return tuple(
        Report(
            run_id=row.run_id,
            step=row.step,
            plan_id=row.plan_id,
            verdicts=tuple(verdicts[row.number]),
            checkpoint=_checkpoint(row),
            created_at=row.judged_at,
            rules_version=row.rules_version,
        )
        for row in connection.execute(select(EVALUATIONS).where(is_judged).order_by(*order))
    )


def _outlined(connection: Connection, run_id: str) -> Mapping[int, list[Verdict]]:
    """Return the verdicts on whole benchmarks by the number of the evaluation."""
    names = ("evaluation", "subject", "word", "score", "coverage", "lost_since", "missing", "screened")
    query = select(*(JUDGED.c[name] for name in names)).join(EVALUATIONS, EVALUATIONS.c.number == JUDGED.c.evaluation)
    order = JUDGED.c.evaluation, JUDGED.c.position
    benchmarks = _whole_benchmarks(connection)
    found: dict[int, list[Verdict]] = defaultdict(list)
    for row in connection.execute(query.where(EVALUATIONS.c.run_id == run_id).order_by(*order)):
        benchmark = benchmarks.get(row.subject)
        if benchmark is not None:
            found[row.evaluation].append(_outlined_verdict(row, benchmark))
    return found


def _outlined_verdict(row: Row[Any], benchmark: str) -> Verdict:
    return Verdict(
        benchmark=benchmark,
        word=_WORDS[row.word],
        reason=None if row.missing is None else _REASON.validate_json(row.missing),
        score=row.score,
        stderr=None,
        coverage=row.coverage,
        alpha_test=0.0,
        lost_since=row.lost_since,
        screened=None if row.screened is None else _SCREENED.validate_json(row.screened),
    )


def _whole_benchmarks(connection: Connection) -> Mapping[int, str]:
    """Return the names of benchmarks by the number of the subject; without subsets, and all together."""
    is_whole = (SUBJECTS.c.benchmark != "") & (SUBJECTS.c.subset == "") & (SUBJECTS.c.measure == Measure.SCORE)
    query = select(SUBJECTS.c.number, SUBJECTS.c.benchmark).where(is_whole)
    return {row.number: row.benchmark for row in connection.execute(query)}


def _put_evaluation(connection: Connection, plan_id: str, checkpoint: Checkpoint, known: Mapping[str, object]) -> int:
    """Store the checkpoint of a plan, and what else is known of it, and return its number."""
    changes = {**{name: getattr(checkpoint, name) for name in _OF_CHECKPOINT}, **known}
    row = {"plan_id": plan_id, "suite": "", "rules_version": 1, **changes}
    upsert = (
        insert_into(connection, EVALUATIONS)
        .values(row)
        .on_conflict_do_update(index_elements=[EVALUATIONS.c.plan_id], set_=changes)
    )
    return int(connection.execute(upsert.returning(EVALUATIONS.c.number)).scalar_one())


def _replace(
    connection: Connection, table: Table, number: int, subjects: Sequence[_Subject], values: list[dict[str, object]]
) -> None:
    connection.execute(delete(table).where(table.c.evaluation == number))
    for position, (row, subject) in enumerate(zip(values, _numbers(connection, subjects), strict=True)):
        row |= {"evaluation": number, "position": position, "subject": subject}
    if values:
        connection.execute(insert(table), values)


def _numbers(connection: Connection, subjects: Sequence[_Subject]) -> list[int]:
    """Return the number of each subject; new ones are added."""
    keys = [_key_of(subject) for subject in subjects]
    query = select(SUBJECTS.c.key, SUBJECTS.c.number).where(SUBJECTS.c.key.in_(keys))
    known = {row.key: row.number for row in connection.execute(query)}
    new = {key: subject for key, subject in zip(keys, subjects, strict=True) if key not in known}
    if new:
        rows = [{"key": key, **subject._asdict()} for key, subject in new.items()]
        # Another process may add the same ones.
        connection.execute(insert_into(connection, SUBJECTS).values(rows).on_conflict_do_nothing())
        known |= {row.key: row.number for row in connection.execute(query)}
    return [known[key] for key in keys]


@lru_cache(maxsize=4096)
def _key_of(subject: _Subject) -> str:
    return content_hash(list(subject))


def _values(table: Table, row: MeasuredRow | JudgedRow) -> dict[str, object]:
    """Return the columns that are fields of the row."""
    return {column.name: getattr(row, column.name) for column in table.c if hasattr(row, column.name)}


def _checkpoint(row: Row[Any]) -> Checkpoint:
    fields = {name: getattr(row, name) for name in _OF_CHECKPOINT}
    return Checkpoint(**{**fields, "format": CheckpointFormat(row.format)})
