"""Makes up a project of any size: plans in the queue, checkpoints with samples, verdicts, a trainer's folder."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine, insert, select

from eval_jobs.codec import record_to_bytes
from eval_jobs.identity import benchmark_fingerprint, content_hash, make_plan
from eval_jobs.queue.database_sql import transaction
from eval_jobs.queue.plans_sql import PLANS
from eval_jobs.queue.rules import PlanState
from eval_jobs.queue.sql_queue import SqlQueue
from eval_jobs.types import (
    Benchmark,
    Checkpoint,
    CheckpointFormat,
    EvalPlan,
    EvalRecord,
    EvalResult,
    SampleScore,
    SampleStatus,
    ServeSpec,
    Suite,
)
from tracker.adapters.database.tables import RECORDS
from tracker.adapters.history.store_sql import SqlHistory
from tracker.adapters.samples.packed_parquet import PackedSamples, SampleFiles, pack
from tracker.domain.records.policy import Policy
from tracker.domain.records.types import Report
from tracker.domain.scores.run_scores import scores_of
from tracker.domain.scores.sample_columns import columns_of
from tracker.domain.verdicts.context import RunContext
from tracker.domain.verdicts.judge import judge

START = datetime(2026, 1, 1, tzinfo=UTC)
STEPS = 500
"""Between two checkpoints."""
VARIANTS = 24
"""Different sets of answers that checkpoints are given in turn; making 40 million up would take minutes."""
_JUDGED = 16
"""Checkpoints that are really judged; the reports of the rest are those of the last of them."""
_WORDS = ("the", "answer", "is", "because", "seven", "blue", "Paris", "not", "sure", "therefore", "x", "equals", "so")


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the made-up project is."""

    plans: int = 100_000
    runs: int = 1
    checkpoints: int = 2_000
    """Of each run."""
    benchmarks: int = 20
    samples: int = 1_000
    """Of each benchmark."""

    @property
    def samples_stored(self) -> int:
        """Graded answers in the history."""
        return self.runs * self.checkpoints * self.benchmarks * self.samples


def suite_of(size: Size) -> Suite:
    """Return the suite of the project."""
    names = [f"benchmark-{k:02}" for k in range(size.benchmarks)]
    return Suite(name="scale", benchmarks=tuple(Benchmark(name=name, adapter="exact") for name in names))


def plan_at(size: Size, run_id: str, step: int) -> EvalPlan:
    """Return the plan of a checkpoint."""
    checkpoint = Checkpoint(
        run_id=run_id,
        step=step,
        uri=f"/state/pins/{run_id}/{step}",
        source_uri=f"/out/checkpoint-{step}",
        format=CheckpointFormat.FULL,
        digest=content_hash([run_id, step]) * 2,
        ready_at=START + timedelta(seconds=step),
    )
    return make_plan(checkpoint, suite_of(size), ServeSpec(), ())


def record_at(size: Size, run_id: str, step: int, seed: int) -> EvalRecord:
    """Return what came out of a checkpoint: right and wrong answers of 1 to 256 tokens, one in a hundred cut off."""
    plan = plan_at(size, run_id, step)
    outcomes = tuple(
        EvalResult(
            benchmark=benchmark.name,
            fingerprint=benchmark_fingerprint(benchmark, plan.suite),
            metric="accuracy",
            samples=_samples(k, size.samples, seed),
            duration_s=60.0,
        )
        for k, benchmark in enumerate(plan.suite.benchmarks)
    )
    at = START + timedelta(seconds=step)
    return EvalRecord(plan=plan, outcomes=outcomes, probes=(), engine=None, started_at=at, finished_at=at)


def fill_queue(engine: Engine, size: Size) -> None:
    """Put plans of other runs into the queue: nine in ten are done, the rest wait."""
    plan = plan_at(size, "other", 1)
    SqlQueue(engine).add(plan, now=START)
    with transaction(engine) as connection:
        row = dict(connection.execute(select(PLANS)).mappings().one())
        rows = (
            row
            | {
                "id": f"{k:032x}",
                "run_id": f"other-{k % 20}",
                "step": k,
                "place": k,
                "state": PlanState.ACKNOWLEDGED if k % 10 else PlanState.WAITING,
            }
            for k in range(1, size.plans)
        )
        while some := [row for row, _ in zip(rows, range(5_000), strict=False)]:
            connection.execute(insert(PLANS), some)


def fill_history(engine: Engine, samples_dir: Path, size: Size) -> None:
    """Store every checkpoint of every run, as `SqlHistory.append` and `append_reports` do, from a few variants."""
    history = SqlHistory(engine, samples_dir)
    variants = [record_at(size, "variant", 0, seed) for seed in range(min(VARIANTS, size.checkpoints))]
    packed = [pack(record) for record in variants]
    report = _judged(variants[:_JUDGED])
    bare = replace(variants[0], outcomes=tuple(replace(o, samples=()) for o in _results(variants[0])))
    for run in range(size.runs):
        for index in range(size.checkpoints):
            plan = plan_at(size, run_name(run), STEPS * (index + 1))
            _store(engine, SampleFiles(samples_dir), replace(bare, plan=plan), packed[index % len(packed)])
            at = START + timedelta(seconds=plan.checkpoint.step)
            history.append_reports(
                replace(
                    report,
                    run_id=run_name(run),
                    step=plan.checkpoint.step,
                    checkpoint=plan.checkpoint,
                    plan_id=plan.id,
                    created_at=at,
                    incidents=(),
                )
            )


def run_name(run: int) -> str:
    """Return the name of a made-up run."""
    return f"run-{run:02}"


def write_project(folder: Path) -> Path:
    """Write the configuration of a project and return its path."""
    data = folder / "sums.jsonl"
    data.write_text('{"question": "1+1=", "answer": 2}\n')
    path = folder / "tracker.toml"
    path.write_text(
        f'[run]\nname = "{run_name(0)}"\noutput_dir = "{folder}/out"\nstate_dir = "{folder}/state"\n'
        f'[tracking]\nenabled = false\n[[benchmark]]\nbenchmark = "exact"\ndata = "{data}"\n'
    )
    (folder / "state").mkdir()
    return path


def write_training_output(folder: Path, *, checkpoints: int) -> None:
    """Write checkpoint folders of ten files each, as a trainer leaves them; the weights are one small tensor."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    for index in range(checkpoints):
        step = 10 * (index + 1)
        place = folder / f"checkpoint-{step}"
        place.mkdir(parents=True)
        (place / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
        values = bytes(random.Random(index).randbytes(4)) + bytes((0, 0, 128, 63)) * 3  # noqa: S311 - made-up weights
        weights = len(header).to_bytes(8, "little") + header + values[:3] + bytes((63,)) + values[4:]
        (place / "model.safetensors").write_bytes(weights)
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
        for name in ("generation_config", "tokenizer", "tokenizer_config", "special_tokens_map", "vocab"):
            (place / f"{name}.json").write_text("{}")
        for name in ("training_args.bin", "scheduler.pt"):
            (place / name).write_bytes(bytes(64))


# --- private


def _samples(benchmark: int, count: int, seed: int) -> tuple[SampleScore, ...]:
    rng = random.Random(f"{benchmark} {seed}")  # noqa: S311 - made-up answers
    ability = 0.3 + 0.6 * ((benchmark * 7) % 20) / 20
    return tuple(
        SampleScore(
            sample_id=content_hash([benchmark, index]),
            subset="",
            score=float(rng.random() < ability),
            status=SampleStatus.TRUNCATED if rng.random() < 0.01 else SampleStatus.SCORED,
            prompt=f"Question {index} of benchmark {benchmark}: what comes after {index * 37 % 1001}?",
            target=str((index * 37 + 1) % 1001),
            answer=" ".join(rng.choices(_WORDS, k=8)),
            output_tokens=min(int(rng.expovariate(1 / 80)) + 1, 256),
        )
        for index in range(count)
    )


def _judged(variants: Sequence[EvalRecord]) -> Report:
    """Return the report on the last of `variants`, as if they were a run."""
    records = [
        replace(r, plan=replace(r.plan, checkpoint=replace(r.plan.checkpoint, step=STEPS * (k + 1))))
        for k, r in enumerate(variants)
    ]
    columns = [{o.benchmark: columns_of(o.samples) for o in _results(r)} for r in records]
    scores = scores_of("variant", zip(records, columns, strict=True))
    return judge(records[-1], scores, RunContext(), Policy(), now=START)


def _results(record: EvalRecord) -> tuple[EvalResult, ...]:
    return tuple(o for o in record.outcomes if isinstance(o, EvalResult))


def _store(engine: Engine, files: SampleFiles, record: EvalRecord, packed: PackedSamples) -> None:
    checkpoint = record.plan.checkpoint
    at = START + timedelta(seconds=checkpoint.step)
    files.write(replace(packed, plan_id=record.plan.id))
    row = {
        "plan_id": record.plan.id,
        "run_id": checkpoint.run_id,
        "step": checkpoint.step,
        "finished_at": at,
        "record": record_to_bytes(replace(record, started_at=at, finished_at=at)),
        "samples": packed.version,
    }
    with transaction(engine) as connection:
        connection.execute(insert(RECORDS).values(row))
