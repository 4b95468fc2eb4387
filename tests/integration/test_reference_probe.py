"""A checkpoint timed interleaved with a reference, through the real client, on a real vLLM server that others run."""

import math
from pathlib import Path

import pytest

from eval_jobs.codec import record_from_bytes, record_to_bytes
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.host.clock import SystemClock
from eval_jobs.identity import make_plan
from eval_jobs.probe.prober import LatencyProber
from eval_jobs.run import Tools, run_plan
from eval_jobs.serve.remote import RemoteEngine
from eval_jobs.types import Endpoint, EngineKind, ProbeLoad, ProbeResult, ReferenceProbe, ServeSpec, Suite
from tests.tiny_model import checkpoint_record, write_checkpoint
from tracker.domain.latency.judge import judge_latency
from tracker.domain.records.policy import LatencyPolicy
from tracker.domain.records.types import LatencyMethod, LatencyMetric

pytestmark = pytest.mark.vllm

LOAD = ProbeLoad(requests=50, concurrency=4, input_tokens=32, output_tokens=8)


def test_a_real_server_gives_pairs_of_every_time_and_a_verdict_on_each(served: Endpoint, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    spec = ServeSpec(engine=EngineKind.REMOTE, base_url=served.base_url, model=served.model)
    plan = make_plan(
        checkpoint_record(folder, step=200),
        Suite(name="none", benchmarks=()),
        spec,
        (LOAD,),
        checkpoint_record(folder, step=100),
    )
    clock = SystemClock()
    evaluator = EvalScopeEvaluator(tmp_path / "work")
    tools = Tools(engine=RemoteEngine(clock), evaluator=evaluator, prober=LatencyProber(), clock=clock)
    record = run_plan(plan, tools=tools, progress=lambda _: None)

    assert record_from_bytes(record_to_bytes(record)) == record
    [alone], [probe] = record.probes, record.reference_probes
    assert isinstance(alone, ProbeResult)
    assert isinstance(probe, ReferenceProbe)
    assert (probe.reference_step, probe.dropped, len(probe.candidate)) == (100, 0, 2 * LOAD.requests)
    assert probe.candidate[: LOAD.requests] == alone.requests
    timings = (*probe.candidate, *probe.reference)
    for t in timings:
        assert t.tpot_ms is not None
        assert 0 < t.ttft_ms <= t.e2e_ms
        assert t.tpot_ms * (LOAD.output_tokens - 1) == pytest.approx(t.e2e_ms - t.ttft_ms, abs=0.01)
    # On a busy machine a whole answer may be there before the client looks: then both are one moment.
    assert sum(t.ttft_ms < t.e2e_ms for t in timings) > len(timings) / 2

    verdicts = [v for v in judge_latency(record, (), LatencyPolicy()) if v.quantile == 0.5]
    assert {v.method for v in verdicts} == {LatencyMethod.INTERLEAVED}
    assert all(v.reason and (v.ratio is None or math.isfinite(v.ratio)) for v in verdicts)
    # What came as a whole has no time per token: on a busy machine too few pairs of it may be left, which is said.
    assert {v.metric for v in verdicts if v.ratio is None} <= {LatencyMetric.TPOT}
