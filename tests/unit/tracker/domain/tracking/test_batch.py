"""A record and its verdicts become metrics, tags and files of a tracking store."""

import math
from dataclasses import replace
from datetime import timedelta

from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.types import (
    Benchmark,
    Cost,
    EvalRecord,
    EvalResult,
    Percentiles,
    ProbeResult,
    SampleStatus,
)
from tests.records import forgetting_run
from tracker.domain.records.tracking import TrackingBatch
from tracker.domain.records.types import CurvePoint, Report
from tracker.domain.tracking.batch import curve_batch, live_curve_batch, timestamp_ms, tracking_batch

RUN = forgetting_run(samples=40)
RECORD, REPORT = RUN.records[9], RUN.reports[9]
CHECKPOINT = RECORD.plan.checkpoint


def values(batch: TrackingBatch) -> dict[str, float]:
    return {m.key: m.value for m in batch.metrics}


def batch_at(step: int) -> TrackingBatch:
    index = step // 100 - 1
    return tracking_batch(RUN.records[index], RUN.reports[index])


def with_names(record: EvalRecord, *names: str) -> tuple[EvalRecord, Report]:
    """Return the record with its first benchmarks renamed, and a report without verdicts."""
    benchmarks = tuple(Benchmark(name=n, adapter="exact") for n in names)
    suite = replace(record.plan.suite, benchmarks=benchmarks)
    outcomes = tuple(replace(o, benchmark=n) for o, n in zip(record.outcomes, names, strict=False))
    return replace(record, plan=replace(record.plan, suite=suite), outcomes=outcomes), replace(REPORT, verdicts=())


def test_every_benchmark_gives_a_score_a_coverage_and_a_share_of_truncated_answers() -> None:
    metrics = values(batch_at(1000))
    for name in ("facts", "sums", "reversal"):
        assert 0 <= metrics[f"bench/{name}"] <= 1
        assert metrics[f"coverage/{name}"] == 1
        assert metrics[f"truncated/{name}"] == 0


def test_metrics_carry_the_checkpoints_step_and_time() -> None:
    batch = batch_at(1000)
    assert {m.step for m in batch.metrics} == {1000}
    assert {m.timestamp_ms for m in batch.metrics} == {timestamp_ms(CHECKPOINT)}


def test_the_same_record_gives_the_same_batch() -> None:
    assert tracking_batch(RECORD, REPORT) == tracking_batch(RECORD, REPORT)


def test_latency_is_there_without_a_name_when_there_is_one_load() -> None:
    metrics = values(batch_at(1000))
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        assert metrics[f"perf/{name}_p50"] <= metrics[f"perf/{name}_p95"]
    assert metrics["perf/output_tokens_per_s"] > 0
    assert metrics["perf/failed_requests"] == 0


def test_several_loads_are_told_apart_by_their_names() -> None:
    probe = next(p for p in RECORD.probes if isinstance(p, ProbeResult))
    heavy = replace(probe, load=replace(probe.load, name="heavy@64"))
    plan = replace(RECORD.plan, loads=(probe.load, heavy.load))
    metrics = values(tracking_batch(replace(RECORD, plan=plan, probes=(probe, heavy)), REPORT))
    assert "perf/default/ttft_ms_p50" in metrics
    assert "perf/heavy_at_64/ttft_ms_p50" in metrics


def test_a_benchmark_that_failed_has_no_score_and_says_why() -> None:
    batch = batch_at(300)
    metrics = values(batch)
    assert "bench/sums" not in metrics
    assert metrics["coverage/sums"] == 0
    assert "truncated/sums" not in metrics
    assert batch.tags["failed/sums"].startswith("E-EVAL-ENDPOINT: the server went away")
    assert {s.path.rpartition("/")[2] for s in batch.samples} == {"facts", "reversal"}


def test_a_probe_that_failed_leaves_no_latency_and_says_why() -> None:
    batch = batch_at(800)
    assert not [key for key in values(batch) if key.startswith("perf/")]
    assert batch.tags["failed/probe-default"].startswith("E-PROBE")


def test_a_probe_in_which_nothing_completed_gives_only_the_failures() -> None:
    probe = next(p for p in RECORD.probes if isinstance(p, ProbeResult))
    empty = replace(
        probe, ttft_ms=None, tpot_ms=None, itl_ms=None, e2e_ms=None, completed=0, failed=32, output_tokens_per_s=0.0
    )
    metrics = values(tracking_batch(replace(RECORD, probes=(empty,)), REPORT))
    assert {k: v for k, v in metrics.items() if k.startswith("perf/")} == {"perf/failed_requests": 32}


def test_samples_without_a_score_lower_the_coverage_and_not_the_score() -> None:
    result = next(o for o in RECORD.outcomes if isinstance(o, EvalResult))
    samples = tuple(
        replace(s, score=None if i % 2 else 1.0, status=SampleStatus.ERROR if i % 2 else SampleStatus.SCORED)
        for i, s in enumerate(result.samples)
    )
    metrics = values(tracking_batch(replace(RECORD, outcomes=(replace(result, samples=samples),)), REPORT))
    assert metrics[f"bench/{result.benchmark}"] == 1
    assert metrics[f"coverage/{result.benchmark}"] == 0.5


def test_nan_and_infinity_are_never_sent() -> None:
    probe = next(p for p in RECORD.probes if isinstance(p, ProbeResult))
    broken = replace(probe, ttft_ms=Percentiles(p50=math.nan, p90=1, p95=math.inf, p99=1, mean=1))
    metrics = values(tracking_batch(replace(RECORD, probes=(broken,)), REPORT))
    assert not [key for key in metrics if "ttft" in key]
    assert all(map(math.isfinite, metrics.values()))
    points = [CurvePoint(key="train/loss", step=i, value=v) for i, v in enumerate((math.nan, -math.inf, 1.0))]
    assert [p.value for p in curve_batch(CHECKPOINT, points).points] == [1.0]


def test_odd_names_become_keys_and_stay_themselves_as_dataset_names() -> None:
    record, report = with_names(RECORD, "pass@1", "acc,none", "acc none")
    batch = tracking_batch(record, report)
    assert {"bench/pass_at_1", "bench/acc_none", "bench/acc none"} <= values(batch).keys()
    assert {d.name for d in batch.datasets} == {"pass@1", "acc,none", "acc none"}


def test_names_that_would_share_a_key_are_kept_apart() -> None:
    record, report = with_names(RECORD, "acc,none", "acc@none", "acc;none")
    keys = [k for k in values(tracking_batch(record, report)) if k.startswith("bench/")]
    assert len(keys) == 3


def test_each_score_names_the_dataset_that_it_was_measured_on() -> None:
    batch = batch_at(1000)
    suite = RECORD.plan.suite
    digests = {d.name: d.digest for d in batch.datasets}
    assert digests == {b.name: benchmark_fingerprint(b, suite) for b in suite.benchmarks}
    assert all(len(d) <= 36 for d in digests.values())
    assert {m.dataset for m in batch.metrics if m.key.startswith("bench/")} == set(digests)
    assert {m.dataset for m in batch.metrics if not m.key.startswith("bench/")} == {""}


def test_verdicts_become_tags_with_the_most_urgent_word_on_top() -> None:
    tags = batch_at(1000).tags
    assert tags["verdict"] == "forgotten"
    assert tags["verdict/facts"] == "forgotten"
    assert {v.benchmark for v in batch_at(1000).verdicts} == {"facts", "sums", "reversal"}


def test_a_verdict_says_what_it_was_compared_with() -> None:
    facts = next(v for v in batch_at(1000).verdicts if v.benchmark == "facts")
    assert (facts.change, facts.baseline) == (-0.85, "peak, step 600")
    first = next(v for v in batch_at(100).verdicts if v.benchmark == "facts")
    assert (first.change, first.baseline) == (None, "")


def test_a_verdict_on_an_unknown_benchmark_still_gives_a_key_that_mlflow_takes() -> None:
    verdict = replace(REPORT.verdicts[0], benchmark="gone@1")
    assert "verdict/gone_at_1" in tracking_batch(RECORD, replace(REPORT, verdicts=(verdict,))).tags


def test_files_of_two_checkpoints_of_one_step_are_kept_apart() -> None:
    again = replace(RECORD, plan=replace(RECORD.plan, checkpoint=replace(CHECKPOINT, digest="f" * 64)))
    first, second = tracking_batch(RECORD, REPORT), tracking_batch(again, REPORT)
    assert not {s.path for s in first.samples} & {s.path for s in second.samples}
    assert first.report_path != second.report_path


def test_points_of_a_curve_are_in_order_on_a_time_axis_too() -> None:
    points = [CurvePoint(key="train/loss", step=s, value=1.0) for s in (10, 20, 1000)]
    times = [p.timestamp_ms for p in curve_batch(CHECKPOINT, points).points]
    assert times == sorted(times)
    assert times[-1] == timestamp_ms(CHECKPOINT)


def test_a_rewound_branch_is_newer_than_the_one_it_replaces() -> None:
    later = replace(CHECKPOINT, step=900, ready_at=CHECKPOINT.ready_at + timedelta(minutes=5))
    point = CurvePoint(key="train/loss", step=900, value=1.0)
    first, second = curve_batch(CHECKPOINT, [point]), curve_batch(later, [point])
    assert second.points[0].timestamp_ms > first.points[0].timestamp_ms


def test_what_a_checkpoint_cost_is_a_metric_of_its_step() -> None:
    cost = Cost(loading_s=1, evaluating_s=2, probing_s=3, input_tokens=100, output_tokens=10, gpu_s=12)
    batch = tracking_batch(replace(RECORD, cost=cost), REPORT)
    assert {key: value for key, value in values(batch).items() if key.startswith("cost/")} == {
        "cost/wall_s": 6,
        "cost/loading_s": 1,
        "cost/evaluating_s": 2,
        "cost/probing_s": 3,
        "cost/input_tokens": 100,
        "cost/output_tokens": 10,
        "cost/gpu_s": 12,
    }
    assert not [key for key in values(tracking_batch(RECORD, REPORT)) if key.startswith("cost/")]


def test_live_points_have_increasing_times_also_where_training_goes_back() -> None:
    points = [CurvePoint(key="train/loss", step=step, value=1.0) for step in (10, 500, 10**7, 500)]
    batch = live_curve_batch("run", points, CHECKPOINT.ready_at)
    times = [point.timestamp_ms for point in batch.points]
    assert times == [timestamp_ms(CHECKPOINT) - 3 + place for place in range(4)]
