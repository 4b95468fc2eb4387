"""Sweeps, turns and results for tests, made up without a model."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from eval_jobs.identity import benchmark_fingerprint
from eval_jobs.probe.latency import Measurement, Timeline, summarize
from eval_jobs.types import (
    Checkpoint,
    EngineInfo,
    EngineKind,
    EvalPlan,
    EvalRecord,
    EvalResult,
    ProbeLoad,
    ProbeResult,
    SampleScore,
    SampleStatus,
    ServeSpec,
)
from tests.records import forgetting_run
from tracker.domain.sweeps.selectors import parse_selector
from tracker.domain.sweeps.types import Missed, OtherModel, Sweep, Timetable
from tracker.ports import HeldPin

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)
RECORDED = forgetting_run(checkpoints=4, samples=10, trouble=False)
CHECKPOINTS = tuple(record.plan.checkpoint for record in RECORDED.records)
SUITE = RECORDED.records[0].plan.suite
SERVE = RECORDED.records[0].plan.serve
LOADS = tuple(ProbeLoad(name=f"c{n}", concurrency=n, requests=8) for n in (1, 4))
OTHER = OtherModel(
    name="other", serve=ServeSpec(engine=EngineKind.REMOTE, base_url="http://127.0.0.1:9/v1", model="big")
)
NIGHTLY = Timetable(cron="0 2 * * *", time_zone="UTC", missed=Missed.ONCE)


def sweep_of(name: str = "nightly", *, checkpoints: Sequence[str] = ("latest:2",), **changes: object) -> Sweep:
    """Return a sweep of the made-up run."""
    sweep = Sweep(
        name=name,
        timetable=NIGHTLY,
        checkpoints=tuple(map(parse_selector, checkpoints)),
        suite=replace(SUITE, name=name),
        serve=SERVE,
        axes={"temperature": (0.0, 0.7)},
    )
    return replace(sweep, **changes)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class FakePins:
    """`tracker.ports.Pins` of checkpoints that are only named; nothing is ever released."""

    checkpoints: list[Checkpoint] = field(default_factory=lambda: list(CHECKPOINTS))

    def held(self) -> tuple[HeldPin, ...]:
        return tuple(HeldPin(checkpoint=c, own_bytes=0) for c in self.checkpoints)

    def given_up(self) -> frozenset[str]:
        return frozenset()

    def release(self, pin: HeldPin) -> bool:  # noqa: ARG002 - part of the port
        return False

    def in_use(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:  # noqa: ARG002 - part of the port
        return nullcontext()


def answered(plan: EvalPlan, *, right: int = 7, of: int = 10, finished_at: datetime = NOW) -> EvalRecord:
    """Return what a worker would hand in: `right` of `of` answers of every benchmark are right."""
    samples = tuple(
        SampleScore(
            sample_id=f"s{n}",
            subset="default",
            score=float(n < right),
            status=SampleStatus.SCORED,
            prompt=f"question {n}",
            target="42",
            answer="42" if n < right else "41",
        )
        for n in range(of)
    )
    return EvalRecord(
        plan=plan,
        outcomes=tuple(
            EvalResult(
                benchmark=b.name,
                fingerprint=benchmark_fingerprint(b, plan.suite),
                metric="acc",
                samples=samples,
                duration_s=2.0,
            )
            for b in plan.suite.benchmarks
        ),
        probes=tuple(map(timed, plan.loads)),
        engine=EngineInfo(name="vllm", version="0.32", load_method="cold", load_s=20.0, log=""),
        started_at=finished_at - timedelta(seconds=30),
        finished_at=finished_at,
    )


def timed(load: ProbeLoad) -> ProbeResult:
    """Return what a load came to: the more at once, the more tokens a second, and the later the first one."""
    wait_s = 0.02 * load.concurrency
    line = Timeline(sent_s=0.0, events_s=tuple(wait_s + 0.005 * n for n in range(load.output_tokens)), output_tokens=32)
    timelines = (line,) * load.requests
    return summarize(load, Measurement(timelines=timelines, duration_s=load.requests * 0.4 / load.concurrency**0.5))
