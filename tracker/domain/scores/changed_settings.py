"""Which changes of settings a record shows. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from eval_jobs.types import EvalPlan, EvalRecord
from tracker.domain.records.reasons import Difference
from tracker.domain.scores.pairing import differences_of
from tracker.domain.scores.series import SeriesKey, series_keys
from tracker.domain.scores.series_changes import SeriesChange, series_numbers


def changes_at(
    record: EvalRecord, known: Sequence[SeriesChange], records: Iterable[EvalRecord]
) -> Iterator[SeriesChange]:
    """Yield the changes that a record shows; `known` are those so far, by time, `records` those of the run."""
    others = sorted((r for r in records if r.plan.id != record.plan.id), key=lambda r: r.started_at)
    for key in series_keys(record.plan, record.outcomes):
        own = [one for one in known if (one.suite, one.benchmark) == (key.suite, key.benchmark)]
        earlier = [pair for other in others for pair in _measured(key, other)]
        yield from _changes(_first(key, record), record, own, earlier)


def numbers_of(record: EvalRecord, changes: Iterable[SeriesChange]) -> Mapping[str, int]:
    """Return the number of the series of each benchmark of a record."""
    known = series_numbers(changes)
    keys = series_keys(record.plan, record.outcomes)
    return {key.benchmark: known.get((key.suite, key.benchmark, key.settings), 1) for key in keys}


_Earlier = Sequence[tuple[SeriesKey, EvalRecord]]
"""Earlier records of a benchmark by time, each with its key of it."""


def _changes(
    change: SeriesChange, record: EvalRecord, own: Sequence[SeriesChange], earlier: _Earlier
) -> Iterator[SeriesChange]:
    """Yield `change` with its number, if it is one; `own` are the earlier ones of its benchmark."""
    if not own and earlier:  # a run of an older version
        own = [_first(*earlier[-1])]
        yield own[0]
    if not own:
        yield change
    elif own[-1].settings != change.settings and own[-1].at <= change.at:
        before = [other.plan for key, other in earlier if key.settings == own[-1].settings]
        yield _next(change, own, _differences(record.plan, before[-1:], change.benchmark))


def _measured(key: SeriesKey, record: EvalRecord) -> Iterator[tuple[SeriesKey, EvalRecord]]:
    """Yield a record with its own key of the benchmark of `key`, if it has one."""
    for one in series_keys(record.plan, record.outcomes):
        if (one.suite, one.benchmark) == (key.suite, key.benchmark):
            yield one, record


def _first(key: SeriesKey, record: EvalRecord) -> SeriesChange:
    return SeriesChange(
        run_id=record.plan.checkpoint.run_id,
        suite=key.suite,
        benchmark=key.benchmark,
        at=record.started_at,
        step=record.plan.checkpoint.step,
        number=1,
        settings=key.settings,
    )


def _next(change: SeriesChange, own: Sequence[SeriesChange], differences: tuple[Difference, ...]) -> SeriesChange:
    same = next((one for one in own if one.settings == change.settings), None)
    number = 1 + max(one.number for one in own) if same is None else same.number
    return replace(change, number=number, differences=differences, is_new=same is None)


def _differences(now: EvalPlan, before: Iterable[EvalPlan], benchmark: str) -> tuple[Difference, ...]:
    for plan in before:
        return differences_of(now, plan, benchmark)
    return (Difference(setting="scoring_version"),)
