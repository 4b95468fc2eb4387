"""Which results of a checkpoint's weights are known, and one record of several evaluations. Pure.

missing_of(plan, records) -> plan of what is missing -> (a worker) -> composed(record, found) -> judged like any other
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from eval_jobs.errors import StoreError
from eval_jobs.identity import content_hash, missing_plan, series_fingerprint, series_serving_hash
from eval_jobs.run import accounted
from eval_jobs.types import Checkpoint, EvalPlan, EvalRecord, EvalResult, ProbeLoad, ProbeResult
from tracker.domain.scores.pairing import served_alike
from tracker.domain.scores.series import SeriesKey, series_keys


def content_of(checkpoint: Checkpoint) -> tuple[str, str]:
    """Return what the answers of a checkpoint depend on, whatever its run and step."""
    return checkpoint.digest, checkpoint.files_digest


def keys_wanted(plan: EvalPlan) -> Mapping[str, SeriesKey]:
    """Return the series of each benchmark of a plan, also of those that it does not ask."""
    serving, suite = series_serving_hash(plan.serve), plan.suite
    found: dict[str, SeriesKey] = {}
    for one in plan.whole or suite.benchmarks:
        fingerprint = series_fingerprint(one, suite)
        found[one.name] = SeriesKey(benchmark=one.name, fingerprint=fingerprint, serving=serving, suite=suite.name)
    return found


def sources_of(plan: EvalPlan, records: Iterable[EvalRecord]) -> dict[str, EvalRecord]:
    """Return by benchmark of a plan the newest of `records` with its result; a failure is none.

    A screen is known for the same screen only; `records` are of the plan's weights.
    """
    found: dict[str, EvalRecord] = {}
    wanted = keys_wanted(plan)
    for record in sorted(records, key=lambda r: (r.finished_at, r.plan.id)):
        results = [one for one in record.results if one.aggregate is None]
        for key, result in zip(series_keys(record.plan, results), results, strict=True):
            is_enough = not result.left_out or record.plan.suite.part == plan.suite.part
            if is_enough and wanted.get(key.benchmark) == key:
                found[key.benchmark] = record
    return found


def missing_of(plan: EvalPlan, records: Sequence[EvalRecord]) -> EvalPlan | None:
    """Return the plan of what `records` of the same weights lack: itself if that is all, None if it is nothing."""
    known = sources_of(plan, records)
    benchmarks = [one.name for one in plan.suite.benchmarks if one.name not in known]
    loads = [one for one in plan.loads if not _is_timed(one, plan, records)]
    if (len(benchmarks), len(loads)) == (len(plan.suite.benchmarks), len(plan.loads)):
        return plan
    if benchmarks or loads:
        return missing_plan(plan, benchmarks, loads)
    return None


def covers(record: EvalRecord, plan: EvalPlan) -> bool:
    """Return whether a record has an outcome of every benchmark of `plan`, with its settings; failures count."""
    if record.plan.serve == plan.serve and replace(record.plan.suite, part=plan.suite.part) == plan.suite:
        return True  # almost always, and faster
    return set(keys_wanted(plan).values()) <= set(series_keys(record.plan, record.outcomes))


def composed(asked: EvalRecord, known: Mapping[str, EvalResult]) -> EvalRecord:
    """Return one record of what was asked and of `known` results by benchmark, as if all had been asked at once.

    A benchmark that is in neither of them is a failure.
    """
    own = {outcome.benchmark: outcome for outcome in asked.outcomes}
    plan = replace(asked.plan, suite=replace(asked.plan.suite, benchmarks=asked.plan.whole), whole=())
    gone = StoreError("missing results of an earlier evaluation", hint="run `tracker evaluate` again")
    outcomes = []
    for one in plan.suite.benchmarks:
        outcomes.append(own.get(one.name) or known.get(one.name) or accounted(one, plan, gone))
    return replace(asked, plan=plan, outcomes=tuple(outcomes))


def taken_over(plan: EvalPlan, source: EvalRecord, now: datetime) -> EvalRecord:
    """Return the record of a plan for which nothing is asked, still without results; `source` has one of them."""
    none = replace(missing_plan(plan, (), ()), id=content_hash([plan.id, "taken over", now.isoformat()]))
    # In one run, a latency that counts twice would look more certain than it is.
    is_elsewhere = source.plan.checkpoint.run_id != plan.checkpoint.run_id
    probes = source.probes if is_elsewhere else ()
    return EvalRecord(plan=none, outcomes=(), probes=probes, engine=source.engine, started_at=now, finished_at=now)


def _is_timed(load: ProbeLoad, plan: EvalPlan, records: Iterable[EvalRecord]) -> bool:
    """Return whether a load of `plan` was timed with its settings."""
    timed = [record.probes for record in records if served_alike(record.plan, plan)]
    return any(isinstance(one, ProbeResult) and one.load == load for probes in timed for one in probes)
