"""Realistic records of whole runs, made up without a model: for tests of everything that reads a history.

`forgetting_run()` is a run of 10 checkpoints and three skills: `facts` and `sums` are learned until step 600, then
only `reversal` is trained and the first two are lost. `wide_run()` is 200 checkpoints of 50 benchmarks, for size.
Everything is a pure function of its arguments.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from eval_jobs.identity import benchmark_fingerprint, content_hash, make_plan
from eval_jobs.types import (
    Benchmark,
    BenchmarkFailure,
    Checkpoint,
    CheckpointFormat,
    EngineInfo,
    EvalPlan,
    EvalRecord,
    EvalResult,
    Generation,
    Outcome,
    Percentiles,
    ProbeFailure,
    ProbeLoad,
    ProbeOutcome,
    ProbeResult,
    SampleScore,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tests.verdicts import outline_of, reports_of
from tracker.domain.records.branches import newest_of_benchmarks
from tracker.domain.records.losses import Acceptance, Incident
from tracker.domain.records.policy import Phase
from tracker.domain.records.types import CurvePoint, Gap, Report
from tracker.domain.scores.run_scores import RunScores, scores_of
from tracker.domain.scores.sample_columns import columns_of

START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
RUN = "tiny-forgetting"
LOAD = ProbeLoad(name="default", requests=32, concurrency=4)

Ability = Callable[[int], float]
"""Share of samples that the model answers rightly at a step."""


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A made-up benchmark: how able the model is at each step, and what it says."""

    benchmark: Benchmark
    ability: Ability
    question: Callable[[int], tuple[str, str]]
    """Index -> (prompt, target)."""
    wrong_answer: Callable[[str, str], str]
    """(prompt, target) -> what the model says when it is wrong."""
    samples: int


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """All that a history holds of one run."""

    run_id: str
    records: tuple[EvalRecord, ...]
    reports: tuple[Report, ...]
    incidents: tuple[Incident, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    gaps: tuple[Gap, ...] = ()
    curves: tuple[CurvePoint, ...] = ()
    phases: tuple[Phase, ...] = ()


FORGETTING_TOML = """
[run]
name = "tiny-forgetting"
output_dir = "out"

[[benchmark]]
benchmark = "exact"
data = "facts.jsonl"

[[phase]]
name = "skills"
from_step = 0

[[phase]]
name = "reversal only"
from_step = 600
"""
"""Configuration of the run that `forgetting_run` makes up."""


def forgetting_run(*, run_id: str = RUN, checkpoints: int = 10, samples: int = 80, trouble: bool = True) -> RecordedRun:
    """Return a run whose first two skills are forgotten after step 600 and whose third is learned.

    Args:
        run_id: name of the run.
        checkpoints: how many, 100 steps apart.
        samples: questions per benchmark.
        trouble: with one benchmark that failed (sums at 300), one partly scored (facts at 400), one failed probe
            (800) and one checkpoint that vanished (550).
    """
    return _forgetting_run(run_id=run_id, checkpoints=checkpoints, samples=samples, trouble=trouble)


@cache  # every test asks for one of a few
def _forgetting_run(*, run_id: str, checkpoints: int, samples: int, trouble: bool) -> RecordedRun:
    skills = (_facts(samples), _sums(samples), _reversal(samples))
    suite = Suite(name="skills", benchmarks=tuple(s.benchmark for s in skills), generation=Generation(max_tokens=16))
    steps = range(100, 100 * checkpoints + 1, 100)
    records = tuple(_record(run_id, step, suite, skills) for step in steps)
    if trouble:
        records = tuple(_with_trouble(record) for record in records)
    return RecordedRun(
        run_id=run_id,
        records=records,
        reports=reports_of(records),
        gaps=(_gap(run_id, 550),) if trouble else (),
        curves=_loss(100 * checkpoints),
        phases=(Phase(name="skills", from_step=0), Phase(name="reversal only", from_step=600)),
    )


def wide_run(*, checkpoints: int = 200, benchmarks: int = 50, samples: int = 20) -> RecordedRun:
    """Return a long run of many benchmarks; every seventh one is forgotten half-way."""
    end = 500 * checkpoints
    skills = tuple(_generic(index, samples, end) for index in range(benchmarks))
    suite = Suite(name="wide", benchmarks=tuple(s.benchmark for s in skills))
    records = tuple(_record("wide", step, suite, skills) for step in range(500, end + 1, 500))
    return RecordedRun(
        run_id="wide",
        records=records,
        reports=reports_of(records),
        curves=_loss(end),
        phases=(Phase(name="pretrain", from_step=0), Phase(name="finetune", from_step=end // 2)),
    )


def scores_of_run(run: RecordedRun) -> RunScores:
    """Return the scores of all records, as `History.scores` does."""
    return scores_of(
        run.run_id,
        (
            (record, {o.benchmark: columns_of(o.samples) for o in record.outcomes if isinstance(o, EvalResult)})
            for record in run.records
        ),
    )


def without_samples(record: EvalRecord) -> EvalRecord:
    """Return the record as `History.records` does: every result without its samples."""
    outcomes = tuple(replace(o, samples=()) if isinstance(o, EvalResult) else o for o in record.outcomes)
    return replace(record, outcomes=outcomes)


def outlined(reports: Sequence[Report]) -> tuple[Report, ...]:
    """Return the reports as `History.outlines` does."""
    newest = newest_of_benchmarks(reports)
    return tuple(report if report.plan_id in newest else outline_of(report) for report in reports)


# --- private: the skills


def _exact(name: str) -> Benchmark:
    return Benchmark(name=name, adapter="exact", data=f"/data/{name}.jsonl", data_digest=content_hash(name))


def _word(index: int, length: int) -> str:
    rng = random.Random(f"word-{index}")  # noqa: S311 - made-up data
    return "".join(rng.choice("bdfgklmnprst" if i % 2 == 0 else "aeiou") for i in range(length))


def _facts(samples: int) -> Skill:
    def question(index: int) -> tuple[str, str]:
        return f"What colour is the {_word(index, 6)}?", ("red", "blue", "green", "amber", "black")[index % 5]

    return Skill(
        benchmark=_exact("facts"),
        ability=lambda step: _rise_and_fall(step, top=0.96, learned_at=350, kept_until=600),
        question=question,
        wrong_answer=lambda prompt, _: prompt.split()[-1].rstrip("?")[::-1],
        samples=samples,
    )


def _sums(samples: int) -> Skill:
    def question(index: int) -> tuple[str, str]:
        a, b = (index * 37) % 50, (index * 17) % 50
        return f"{a} + {b} =", str(a + b)

    return Skill(
        benchmark=_exact("sums"),
        ability=lambda step: _rise_and_fall(step, top=0.84, learned_at=450, kept_until=600),
        question=question,
        wrong_answer=lambda prompt, _: prompt.replace(" ", "")[::-1],
        samples=samples,
    )


def _reversal(samples: int) -> Skill:
    def question(index: int) -> tuple[str, str]:
        word = _word(index + 1000, 4)
        return f"Reverse: {word}", word[::-1]

    return Skill(
        benchmark=_exact("reversal"),
        ability=lambda step: 0.97 / (1 + math.exp(-(step - 720) / 40)),
        question=question,
        wrong_answer=lambda _, target: target[::-1],
        samples=samples,
    )


def _generic(index: int, samples: int, end: int) -> Skill:
    def ability(step: int) -> float:
        top = 0.45 + 0.5 * ((index * 13) % 50) / 50
        if index % 7 == 3:
            return _rise_and_fall(step, top=top, learned_at=end // 5, kept_until=end // 2)
        return top / (1 + math.exp(-(step - end / 4) / (end / 12)))

    def question(sample: int) -> tuple[str, str]:
        return f"Question {sample} of benchmark {index}?", str(sample % 7)

    return Skill(
        benchmark=_exact(f"benchmark_{index:02d}"),
        ability=ability,
        question=question,
        wrong_answer=lambda *_: "no idea",
        samples=samples,
    )


def _rise_and_fall(step: int, *, top: float, learned_at: int, kept_until: int) -> float:
    rise = top / (1 + math.exp(-(step - learned_at) / (learned_at / 5)))
    return rise if step <= kept_until else rise * math.exp(-(step - kept_until) / (kept_until / 5))


def checkpoint_of(run_id: str, step: int) -> Checkpoint:
    """Return the checkpoint of a step; a higher one is newer."""
    return Checkpoint(
        run_id=run_id,
        step=step,
        uri=f"/state/pins/{run_id}/{step}",
        source_uri=f"/out/checkpoint-{step}",
        format=CheckpointFormat.FULL,
        digest=content_hash([run_id, step]),
        ready_at=START + timedelta(seconds=step),
    )


# --- private: records


def _record(run_id: str, step: int, suite: Suite, skills: Sequence[Skill]) -> EvalRecord:
    checkpoint = checkpoint_of(run_id, step)
    ready_at = checkpoint.ready_at
    serve = ServeSpec(dtype="float32", max_model_len=128)
    load_s = 21.0 + (step % 700) / 200
    return EvalRecord(
        plan=make_plan(checkpoint, suite, serve, (LOAD,)),
        outcomes=tuple(_result(skill, suite, step) for skill in skills),
        probes=(_probe(step),),
        engine=EngineInfo(name="vllm", version="0.32.1", load_method="cold", load_s=load_s, log="/state/vllm.log"),
        started_at=ready_at + timedelta(seconds=2),
        finished_at=ready_at + timedelta(seconds=2 + load_s + 3.5 * len(skills)),
    )


def _result(skill: Skill, suite: Suite, step: int) -> EvalResult:
    ability = skill.ability(step)
    samples = tuple(_sample(skill, index, ability, step) for index in range(skill.samples))
    return EvalResult(
        benchmark=skill.benchmark.name,
        fingerprint=benchmark_fingerprint(skill.benchmark, suite),
        metric="exact_match",
        samples=samples,
        duration_s=3.2,
    )


def _sample(skill: Skill, index: int, ability: float, step: int) -> SampleScore:
    # Each sample has its own difficulty, so the same ones stay right; a little noise makes some flip.
    difficulty = random.Random(f"{skill.benchmark.name}-{index}").random()  # noqa: S311
    noise = random.Random(f"{skill.benchmark.name}-{index}-{step}").gauss(0, 0.02)  # noqa: S311
    right = difficulty + noise < ability
    prompt, target = skill.question(index)
    return SampleScore(
        sample_id=content_hash([skill.benchmark.name, index]),
        subset="default",
        score=1.0 if right else 0.0,
        status=SampleStatus.SCORED,
        prompt=prompt,
        target=target,
        answer=target if right else skill.wrong_answer(prompt, target),
        output_tokens=4,
    )


def _probe(step: int) -> ProbeOutcome:
    slow = 1 + 0.08 * math.sin(step / 130)

    def around(p50: float, tail: float) -> Percentiles:
        p50 *= slow
        return Percentiles(p50=p50, p90=p50 * tail**0.7, p95=p50 * tail, p99=p50 * tail**1.6, mean=p50 * 1.05)

    return ProbeResult(
        load=LOAD,
        ttft_ms=around(38.0, 1.6),
        tpot_ms=around(6.2, 1.25),
        itl_ms=around(6.0, 1.4),
        e2e_ms=around(232.0, 1.3),
        completed=32,
        failed=0,
        duration_s=2.1,
        output_tokens=1024,
        requests_per_s=15.2,
        output_tokens_per_s=487.0,
    )


def _with_trouble(record: EvalRecord) -> EvalRecord:
    step = record.plan.checkpoint.step
    if step == 300:
        return replace(
            record, outcomes=tuple(_failed(o, record.plan) if o.benchmark == "sums" else o for o in record.outcomes)
        )
    if step == 400:
        return replace(record, outcomes=tuple(_partly(o) if o.benchmark == "facts" else o for o in record.outcomes))
    if step == 800:
        failure = ProbeFailure(
            load=LOAD,
            code="E-PROBE",
            message="all 32 requests failed: connection reset by peer",
            hint="see /state/vllm.log; lower the load's concurrency",
        )
        return replace(record, probes=(failure,))
    return record


def _failed(outcome: Outcome, plan: EvalPlan) -> BenchmarkFailure:
    return BenchmarkFailure(
        benchmark=outcome.benchmark,
        fingerprint=outcome.fingerprint,
        code="E-EVAL-ENDPOINT",
        message=f"the server went away after 31 of 80 samples of checkpoint {plan.checkpoint.step}",
        hint="see /state/vllm.log; the next evaluation continues at sample 32",
        retryable=True,
    )


def _partly(outcome: Outcome) -> Outcome:
    assert isinstance(outcome, EvalResult)
    lost = SampleStatus.ERROR
    return replace(
        outcome,
        samples=tuple(
            replace(s, score=None, status=lost, answer="", detail="context overflow") if index % 40 == 7 else s
            for index, s in enumerate(outcome.samples)
        ),
    )


def _gap(run_id: str, step: int) -> Gap:
    return Gap(
        run_id=run_id,
        step=step,
        source_uri=f"/out/checkpoint-{step}",
        code="E-CKPT-VANISHED",
        message="it was deleted before it could be pinned",
        hint="raise save_total_limit, or lower watch.interval_s",
        seen_at=START + timedelta(seconds=step),
    )


def _loss(end: int) -> tuple[CurvePoint, ...]:
    """Return a loss that falls, with the step up where the data changes."""
    points = []
    for step in range(10, end + 1, 10):
        since = step if step < 0.6 * end else step - 0.6 * end
        noise = random.Random(f"loss-{step}").gauss(0, 0.03)  # noqa: S311
        value = 0.25 + 2.6 * math.exp(-since / (0.14 * end)) * (1.0 if step < 0.6 * end else 0.6) + noise
        points.append(CurvePoint(key="train/loss", step=step, value=max(0.02, value)))
    return tuple(points)
