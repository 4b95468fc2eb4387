"""A record and its verdicts as values for a tracking store, independent of the kind of store. Pure.

All times come from the checkpoint or, for sweeps, from the record. Building a batch again therefore gives an equal
batch, and sending it again writes the same values. Subsets and samples are files: metric keys stay in the tens.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from eval_jobs.identity import benchmark_fingerprint, suite_fingerprint
from eval_jobs.types import (
    BenchmarkFailure,
    Checkpoint,
    Cost,
    EvalRecord,
    EvalResult,
    ProbeFailure,
    ProbeResult,
)
from tracker.domain.records import tracking
from tracker.domain.records.alerts import baseline_text
from tracker.domain.records.display import one_line
from tracker.domain.records.loss_text import drop_baseline_text
from tracker.domain.records.metric_keys import metric_key, unique_keys
from tracker.domain.records.types import CurvePoint, Report, Verdict, VerdictWord
from tracker.domain.scores.summary import summarise
from tracker.domain.tracking.trainer_run import LOSS_KEY
from tracker.domain.verdicts.screening import is_screen

MAX_TAG_CHARS = 500
DIGEST_CHARS_IN_PATHS = 8
EVIDENCE_LOSSES = 100

PERCENTILE_FIELDS = ("p50", "p95")
LATENCY_FIELDS = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


def tracking_batch(
    record: EvalRecord,
    report: Report,
    left: Iterable[Checkpoint] = (),
    series: Mapping[str, int] = tracking.NO_SERIES,
) -> tracking.TrackingBatch:
    """Return what `record` and its verdicts add to the tracking store.

    `left` are the checkpoints of the run that training left behind when it went back, `series` the numbers of the
    series by benchmark. Every series has its own metrics: values of other settings at one step would be one zig-zag.
    """
    plan = record.plan
    keys = unique_keys(b.name for b in plan.suite.benchmarks)
    numbered = {name: key if series.get(name, 1) == 1 else f"{key}.series{series[name]}" for name, key in keys.items()}
    # It sorts by step; the digest separates the files of a step that was written again.
    digest = plan.checkpoint.digest[:DIGEST_CHARS_IN_PATHS]
    folder = f"step-{plan.checkpoint.step:07d}-{digest}/{metric_key(plan.suite.name)}"
    verdicts = tuple(
        _tracked_verdict(v, keys.get(v.benchmark) or metric_key(v.benchmark), plan.checkpoint) for v in report.verdicts
    )
    return tracking.TrackingBatch(
        plan_id=plan.id,
        checkpoint=plan.checkpoint,
        metrics=tuple(_finite(_metrics(record, numbered))),
        datasets=tuple(_datasets(record)),
        params=_params(record),
        tags=_tags(record, numbered) | verdict_tags(verdicts),
        verdicts=verdicts,
        left=tuple((c.step, c.digest) for c in left),
        samples=tuple(
            tracking.TrackedSamples(path=f"{folder}/{keys[o.benchmark]}", samples=o.samples)
            for o in record.results
            if o.aggregate is None
        ),
        report=report,
        report_path=f"{folder}/report.json",
    )


def curve_batch(checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> tracking.CurveBatch:
    """Return `points` with times: one millisecond per step, relative to the checkpoint's own time.

    The trainer's log has no times. This keeps the points in order on a time axis, and makes the branch of a rewound
    run newer than the one that it replaced.
    """
    metrics = (
        tracking.TrackedMetric(
            key=p.key, value=p.value, step=p.step, timestamp_ms=timestamp_ms(checkpoint) - (checkpoint.step - p.step)
        )
        for p in points
    )
    return tracking.CurveBatch(checkpoint=checkpoint, points=tuple(_finite(metrics)))


def loss_evidence(checkpoint: Checkpoint, points: Sequence[CurvePoint]) -> tracking.CurveBatch | None:
    """Return the newest training losses among `points` as evidence of which run is the trainer's; None: no losses."""
    losses = {point.step: point.value for point in points if point.key == LOSS_KEY and math.isfinite(point.value)}
    if not losses:
        return None
    newest = dict(sorted(losses.items())[-EVIDENCE_LOSSES:])
    return tracking.CurveBatch(checkpoint=checkpoint, points=(), losses=newest)


def live_curve_batch(run_id: str, points: Sequence[CurvePoint], at: datetime) -> tracking.LiveCurveBatch:
    """Return `points` with times: one millisecond per point up to `at`, so that a branch is newer than what it left."""
    at_ms = int(at.timestamp() * 1000)
    first_ms = at_ms - len(points) + 1
    metrics = (
        tracking.TrackedMetric(key=p.key, value=p.value, step=p.step, timestamp_ms=first_ms + place)
        for place, p in enumerate(points)
    )
    return tracking.LiveCurveBatch(run_id=run_id, at_ms=at_ms, points=tuple(_finite(metrics)))


def sweep_batch(record: EvalRecord) -> tracking.SweepBatch:
    """Return what the record of a sweep's plan adds: none of it is a point of the training run.

    Its metrics have the same names as those of a checkpoint, so that both can be compared.
    """
    plan, cell = record.plan, record.plan.sweep
    if cell is None:
        raise ValueError(f"plan {plan.id} is not part of a sweep")
    keys = unique_keys(b.name for b in plan.suite.benchmarks)
    ended_ms = int(record.finished_at.timestamp() * 1000)
    settings = {name: str(value) for name, value in asdict(plan.suite.generation).items()}
    of = {"sweep": cell.sweep, "target": cell.target, "step": str(plan.checkpoint.step), "model": plan.serve.model}
    return tracking.SweepBatch(
        plan_id=plan.id,
        checkpoint=plan.checkpoint,
        sweep=cell.sweep,
        run_name=", ".join([cell.target, *(f"{axis} {value}" for axis, value in cell.variant)]),
        params={name: value for name, value in (settings | dict(cell.variant) | of).items() if value},
        tags=_tags(record, keys) | {"tracker.sweep": cell.sweep, "tracker.target": cell.target},
        # The time of measurement: a plan that runs again after a failure replaces its earlier values.
        metrics=tuple(replace(metric, timestamp_ms=ended_ms) for metric in _finite(_metrics(record, keys))),
        datasets=tuple(_datasets(record)),
        samples=tuple(tracking.TrackedSamples(path=keys[o.benchmark], samples=o.samples) for o in record.results),
        started_ms=int(record.started_at.timestamp() * 1000),
        ended_ms=ended_ms,
    )


def timestamp_ms(checkpoint: Checkpoint) -> int:
    """Return when the checkpoint was ready, as Unix time in milliseconds."""
    return int(checkpoint.ready_at.timestamp() * 1000)


def verdict_tags(verdicts: Iterable[tracking.TrackedVerdict]) -> dict[str, str]:
    """Return `verdict` = the most urgent word and `verdict/<key>` = the word of each; {} without verdicts."""
    by_urgency = sorted(verdicts, key=urgency)
    if not by_urgency:
        return {}
    return {"verdict": str(by_urgency[0].word)} | {f"verdict/{v.key}": str(v.word) for v in by_urgency}


def urgency(verdict: tracking.TrackedVerdict) -> tuple[int, str]:
    """Return a sort key: most urgent word first, then by name."""
    return list(VerdictWord).index(verdict.word), verdict.benchmark


def _metrics(record: EvalRecord, keys: Mapping[str, str]) -> Iterator[tracking.TrackedMetric]:
    checkpoint = record.plan.checkpoint
    # A screening has separate keys: its rest adds other values at the same step, and a store never deletes points.
    part = "screen_" if is_screen(record.plan) else ""
    for outcome in record.outcomes:
        for prefix, value in _scores(outcome, is_of_part=bool(part)):
            # MLflow's table of models has the metrics of datasets in front: there are only the scores.
            dataset = outcome.benchmark if prefix == "bench" else ""
            yield _metric(checkpoint, f"{prefix}/{keys[outcome.benchmark]}", value, dataset=dataset)
    for key, value in _timings(record):
        yield _metric(checkpoint, key, value)
    for name, value in _cost(record.cost):
        yield _metric(checkpoint, f"{part}cost/{name}", value)


def _scores(outcome: EvalResult | BenchmarkFailure, *, is_of_part: bool) -> Iterator[tuple[str, float]]:
    if isinstance(outcome, BenchmarkFailure):
        yield "screen_coverage" if is_of_part else "coverage", 0.0
        return
    summary = summarise(outcome)
    if summary.mean is not None:
        # Never on the curve of the whole benchmark: a part has a different mean for the same weights.
        yield "screen" if outcome.left_out else "bench", summary.mean
    if outcome.aggregate is not None:
        return  # the numbers of unscored and truncated samples are unknown
    yield "screen_coverage" if outcome.left_out else "coverage", summary.coverage
    if summary.planned and not outcome.left_out:  # a part has a different truncated share, like its mean
        yield "truncated", summary.truncated / summary.planned


def _timings(record: EvalRecord) -> Iterator[tuple[str, float]]:
    loads = unique_keys(load.name for load in record.plan.loads)
    for probe in record.probes:
        section = f"perf/{loads[probe.load.name]}" if len(loads) > 1 else "perf"
        if isinstance(probe, ProbeResult):
            for name, value in _latencies(probe):
                yield f"{section}/{name}", value


def _latencies(probe: ProbeResult) -> Iterator[tuple[str, float]]:
    for latency in LATENCY_FIELDS:
        percentiles = getattr(probe, latency)
        if percentiles is not None:
            for field in PERCENTILE_FIELDS:
                yield f"{latency}_{field}", getattr(percentiles, field)
    if probe.completed:
        yield "output_tokens_per_s", probe.output_tokens_per_s
    yield "failed_requests", float(probe.failed)


def _cost(cost: Cost | None) -> Iterator[tuple[str, float]]:
    if cost is None:
        return
    yield "wall_s", cost.wall_s
    for name, value in asdict(cost).items():
        if value is not None:
            yield name, float(value)


def _metric(checkpoint: Checkpoint, key: str, value: float, *, dataset: str = "") -> tracking.TrackedMetric:
    return tracking.TrackedMetric(
        key=key, value=value, step=checkpoint.step, timestamp_ms=timestamp_ms(checkpoint), dataset=dataset
    )


def _finite(metrics: Iterable[tracking.TrackedMetric]) -> Iterator[tracking.TrackedMetric]:
    """Drop NaN and infinities: a store turns them into values that distort an axis."""
    return (metric for metric in metrics if math.isfinite(metric.value))


def _datasets(record: EvalRecord) -> Iterator[tracking.TrackedDataset]:
    suite = record.plan.suite
    for benchmark in suite.benchmarks:
        yield tracking.TrackedDataset(
            name=benchmark.name,
            digest=benchmark_fingerprint(benchmark, suite),
            source=f"{benchmark.adapter} {benchmark.data or ''}".strip(),
        )


def _params(record: EvalRecord) -> dict[str, str]:
    checkpoint = record.plan.checkpoint
    return {
        "step": str(checkpoint.step),
        "digest": checkpoint.digest,
        "format": str(checkpoint.format),
        "path": checkpoint.source_uri,
        "ready_at": checkpoint.ready_at.isoformat(),
    } | ({} if checkpoint.base_model is None else {"base_model": checkpoint.base_model})


def _tags(record: EvalRecord, keys: Mapping[str, str]) -> dict[str, str]:
    tags = {"tracker.suite": suite_fingerprint(record.plan.suite)}
    if record.engine is not None:
        tags["tracker.engine"] = f"{record.engine.name} {record.engine.version} ({record.engine.load_method})"
    for outcome in record.outcomes:
        if isinstance(outcome, BenchmarkFailure):
            tags[f"failed/{keys[outcome.benchmark]}"] = _why(outcome)
    for probe in record.probes:
        if not isinstance(probe, ProbeResult):
            tags[f"failed/probe-{metric_key(probe.load.name)}"] = _why(probe)
    return tags


def _why(failure: BenchmarkFailure | ProbeFailure) -> str:
    return one_line(f"{failure.code}: {failure.message}")[:MAX_TAG_CHARS]


def _tracked_verdict(verdict: Verdict, key: str, checkpoint: Checkpoint) -> tracking.TrackedVerdict:
    against, drop = next(iter(verdict.comparisons), None), verdict.open_drop
    change = None if against is None else against.delta
    baseline = "" if against is None else baseline_text(against.baseline, against.baseline_steps)
    if drop is not None:  # the numbers of a loss are the same everywhere
        change, baseline = drop.delta, drop_baseline_text(drop)
    return tracking.TrackedVerdict(
        benchmark=verdict.benchmark,
        key=key,
        step=checkpoint.step,
        digest=checkpoint.digest,
        word=verdict.word,
        score=None if verdict.screened else verdict.score,  # a part's score would look like a whole one
        change=change,
        baseline=baseline,
    )
