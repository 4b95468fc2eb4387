"""Sheets of the checkpoints of a run -> one record for each checkpoint. Pure.

A record is identified by its content: the same files give the same plan ids, no matter when and from where they are
imported. The digest of the weights is unknown, so all results of one step are attributed to the same checkpoint.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain

from eval_jobs.errors import BadData, ConfigError
from eval_jobs.harness.known_tasks import chance_of_metric
from eval_jobs.identity import content_hash, make_plan
from eval_jobs.types import (
    Checkpoint,
    CheckpointFormat,
    EngineInfo,
    EngineKind,
    EvalPlan,
    EvalRecord,
    EvalResult,
    ProbeResult,
    ServeSpec,
    Suite,
)
from tracker.domain.imports.steps import model_name_without_step, weights_name
from tracker.domain.imports.types import ImportedBenchmark, LeftOut, Sheet
from tracker.domain.records.display import names_text, one_line
from tracker.domain.records.imported import IMPORTED, stands_for_import


@dataclass(frozen=True, kw_only=True)
class ImportedCheckpoint:
    """One imported checkpoint."""

    record: EvalRecord
    left_out: tuple[LeftOut, ...] = ()


def checkpoints_of(sheets: Iterable[Sheet], *, run_id: str, suite: str) -> tuple[ImportedCheckpoint, ...]:
    """Return the checkpoints of all files, lowest step first. If the same measurement was repeated, the newest counts.

    Run and suite are those that the results will belong to.

    Raises:
        BadData: two files have the same benchmark and step with different settings, or one step has two engines or
            models.
    """
    by_step: dict[int, list[Sheet]] = {}
    for sheet in sheets:
        by_step.setdefault(sheet.step, []).append(sheet)
    return tuple(_checkpoint(by_step[step], run_id, suite) for step in sorted(by_step))


def known_chances(checkpoints: Iterable[ImportedCheckpoint]) -> dict[str, float]:
    """Return the score of guessing, by benchmark, for tasks where it is known."""
    chances: dict[str, float] = {}
    for result in chain.from_iterable(one.record.results for one in checkpoints):
        chance = chance_of_metric(result.benchmark, result.metric)
        if chance is not None:
            chances[result.benchmark] = chance
    return chances


def models_of(records: Iterable[EvalRecord]) -> dict[str, frozenset[int]]:
    """Return the steps of every model in imported records, by model name without its step; {} unless there are several.

    If every name occurs once, the names identify checkpoints, not models: the result is {}.
    """
    found: dict[str, set[int]] = {}
    for record in records:
        checkpoint = record.plan.checkpoint
        model = model_name_without_step(checkpoint.uri.removeprefix(f"{IMPORTED}:").rpartition("/")[0])
        if stands_for_import(checkpoint) and model not in ("", checkpoint.run_id):
            found.setdefault(model, set()).add(checkpoint.step)
    are_models = len(found) > 1 and any(len(steps) > 1 for steps in found.values())
    if are_models:
        return {model: frozenset(steps) for model, steps in found.items()}
    return {}


def demand_known_metrics(wanted: Iterable[str], sheets: Iterable[Sheet]) -> None:
    """Raise ConfigError if no file has one of the `wanted` metrics: nothing would be imported as asked for."""
    known = sorted({metric for sheet in sheets for metric in sheet.metrics})
    for name in wanted:
        if name not in known:
            hint = f"the files have {names_text(known)}" if known else "remove --metric: the files have one metric each"
            raise ConfigError(f"no task has the metric {name} as a score from 0 to 1", hint=hint)


def demand_no_other_metric(checkpoints: Iterable[ImportedCheckpoint], known: Iterable[EvalRecord]) -> None:
    """Raise BadData if a step has a benchmark by another metric in `known`: a history shows one score of each.

    A checkpoint that is imported already is accepted.
    """
    found = _metrics_by_plan(record for record in known if stands_for_import(record.plan.checkpoint))
    for record in (one.record for one in checkpoints):
        for result in record.results:
            step, name = record.plan.checkpoint.step, _metric_name(result)
            metrics = found.get((step, result.benchmark), {})
            if metrics and record.plan.id not in metrics and name not in metrics.values():
                was = names_text(sorted(set(metrics.values())))
                what = f"step {step} has {one_line(result.benchmark)} by {was}, the files have {name}"
                raise BadData(what, hint="import another metric into its own run with --run NAME")


def _metrics_by_plan(known: Iterable[EvalRecord]) -> dict[tuple[int, str], dict[str, str]]:
    """Return the metric in each plan, by step and benchmark."""
    found: dict[tuple[int, str], dict[str, str]] = {}
    for record in known:
        for result in record.results:
            metrics = found.setdefault((record.plan.checkpoint.step, result.benchmark), {})
            metrics[record.plan.id] = _metric_name(result)
    return found


def _metric_name(result: EvalResult) -> str:
    """Return the name of a metric, which newer versions of lm-evaluation-harness write with the filter `none`."""
    return one_line(result.metric.removesuffix(",none"))


_AGAIN = "superseded by a newer file of this step"


def _checkpoint(sheets: Sequence[Sheet], run_id: str, suite_name: str) -> ImportedCheckpoint:
    ordered = sorted(sheets, key=lambda sheet: (sheet.measured_at, sheet.source))
    _demand_one_model(ordered)
    measured, replaced = _measured(ordered)
    probes, engine, others = _probes(ordered)
    suite = Suite(name=suite_name, benchmarks=tuple(one.benchmark for one in measured))
    plan = _plan(ordered, run_id, suite, probes)
    times = [sheet.measured_at for sheet in ordered]
    record = EvalRecord(
        plan=plan,
        outcomes=tuple(one.outcome for one in measured),
        probes=probes,
        engine=engine,
        started_at=min(times),
        finished_at=max(times),
    )
    # Sorted, not in the order of the files, which may have been imported from another folder before.
    content = sorted(content_hash(asdict(outcome)) for outcome in (*record.outcomes, *record.probes))
    record = replace(record, plan=replace(plan, id=content_hash([plan.id, IMPORTED, content])))
    left_out = (*chain.from_iterable(sheet.left_out for sheet in ordered), *replaced, *others)
    return ImportedCheckpoint(record=record, left_out=left_out)


def _demand_one_model(sheets: Iterable[Sheet]) -> None:
    """Raise BadData if one program evaluated several models; two programs may name one model differently."""
    found: dict[str, tuple[str, Sheet]] = {}
    for sheet in sheets:
        name = weights_name(sheet.model)
        if not (name and sheet.measured):
            continue
        known, other = found.setdefault(sheet.engine.name, (name, sheet))
        if known != name:
            both = f"{one_line(known)} in {other.source}, {one_line(name)} in {sheet.source}"
            what = f"step {sheet.step} has results of two models: {both}"
            raise BadData(what, hint="import each model into its own run with --run NAME")


def _plan(sheets: Sequence[Sheet], run_id: str, suite: Suite, probes: Sequence[ProbeResult]) -> EvalPlan:
    checkpoint = _imported_checkpoint(sheets[0], run_id, min(sheet.measured_at for sheet in sheets))
    loads = sorted((probe.load for probe in probes), key=lambda load: load.name)
    return make_plan(checkpoint, suite, ServeSpec(engine=EngineKind.REMOTE), loads)


def _imported_checkpoint(sheet: Sheet, run_id: str, ready_at: datetime) -> Checkpoint:
    model = (sheet.model or run_id).rstrip("/").rpartition("/")[2]
    place = f"{IMPORTED}:{model}/checkpoint-{sheet.step}"
    return Checkpoint(
        run_id=run_id,
        step=sheet.step,
        uri=place,
        source_uri=place,
        format=CheckpointFormat.FULL,
        digest=content_hash([IMPORTED, run_id, sheet.step]),
        ready_at=ready_at,
    )


def _measured(sheets: Sequence[Sheet]) -> tuple[tuple[ImportedBenchmark, ...], list[LeftOut]]:
    """Return every benchmark once, and the results that a newer file replaces."""
    found: dict[str, tuple[Sheet, ImportedBenchmark]] = {}
    replaced: list[LeftOut] = []
    for sheet in sheets:
        for one in sheet.measured:
            name = one.benchmark.name
            if name in found:
                earlier, known = found[name]
                if known.outcome.fingerprint != one.outcome.fingerprint:
                    files = f"{earlier.source} and {sheet.source}"
                    what = f"conflicting results of {name} at step {sheet.step}: {files} differ in settings"
                    raise BadData(what, hint="import them into two runs with --run NAME")
                if known != one:
                    replaced.append(LeftOut(source=earlier.source, name=name, reason=_AGAIN))
            found[name] = (sheet, one)
    return tuple(one for _, one in found.values()), replaced


def _probes(sheets: Sequence[Sheet]) -> tuple[tuple[ProbeResult, ...], EngineInfo, list[LeftOut]]:
    """Return the probes, each load once, their engine, and what was left out; a checkpoint has one engine."""
    found: dict[str, tuple[Sheet, ProbeResult]] = {}
    left_out: list[LeftOut] = []
    serving = [sheet for sheet in sheets if sheet.probes]
    engine = _engine(serving or sheets[:1])
    for sheet in serving:
        for probe in sheet.probes:
            name = probe.load.name
            if name in found and found[name][1] != probe:
                left_out.append(LeftOut(source=found[name][0].source, name=name, reason=_AGAIN))
            found[name] = (sheet, probe)
    return tuple(probe for _, probe in found.values()), engine, left_out


def _engine(serving: Sequence[Sheet]) -> EngineInfo:
    engine = serving[0].engine
    for sheet in serving:
        if engine != sheet.engine:
            raise BadData(
                f"{sheet.source}: step {sheet.step} was served by {sheet.engine.name}, other results by {engine.name}",
                hint="import each engine into its own run with --run NAME",
            )
    return engine
