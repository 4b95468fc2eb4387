"""The records that flow through the system: checkpoint -> plan -> record.

All are frozen, compare by value and do not depend on files, clocks or JSON (see `codec`).
Times are timezone-aware UTC; durations carry their unit in the name; a failure is a value, never a score of 0.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from eval_jobs.records.bounds import Bounds
from eval_jobs.records.engine import Canary, Endpoint, EngineInfo
from eval_jobs.records.imported import Aggregate
from eval_jobs.records.probe import (
    LoadSettings,
    Percentiles,
    ProbeFailure,
    ProbeLoad,
    ProbeOutcome,
    ProbeResult,
    ReferenceOutcome,
    ReferenceProbe,
    RequestSettings,
    RequestTiming,
)
from eval_jobs.records.program import Program
from eval_jobs.records.serve import Between, EngineKind, OnlyWhen, ServeSettings, ServeSpec, SwapPolicy
from eval_jobs.records.sweep import SweepCell

__all__ = [
    "Between",
    "Canary",
    "Endpoint",
    "EngineInfo",
    "EngineKind",
    "LoadSettings",
    "OnlyWhen",
    "Percentiles",
    "ProbeFailure",
    "ProbeLoad",
    "ProbeOutcome",
    "ProbeResult",
    "Program",
    "ReferenceOutcome",
    "ReferenceProbe",
    "RequestSettings",
    "RequestTiming",
    "ServeSettings",
    "ServeSpec",
    "SwapPolicy",
    "SweepCell",
]
"""Re-exported names that are defined elsewhere."""

# --- what is evaluated


class CheckpointFormat(StrEnum):
    """How the weights of a checkpoint are stored."""

    FULL = "full"
    """A Hugging Face model folder: config.json and safetensors, in one file or in shards."""
    LORA = "lora"
    """A PEFT adapter folder: adapter_config.json and adapter_model.safetensors, served together with its base."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One finished checkpoint, kept by the tracker's own pin."""

    run_id: str
    step: int
    uri: str
    """Absolute path of the pin, which the engine loads."""
    source_uri: str
    """Absolute path of the trainer's own folder, which may have been deleted."""
    format: CheckpointFormat
    digest: str
    """Hex SHA-256 of the weights' bytes: it changes if the step is written again."""
    ready_at: datetime
    """When the trainer finished it: the newest modification time of its files."""
    base_model: str | None = None
    """For LORA: path of the base model."""
    unpickled: bool = False
    """Whether its weights were read from a pickle, which can execute code. Not part of any identity."""
    files_digest: str = ""
    """Hash of the other served files, such as the tokenizer. Empty: unknown."""


# --- how it is evaluated


@dataclass(frozen=True, kw_only=True)
class BenchmarkSettings:
    """Settings of a benchmark, for every evaluator."""

    subsets: tuple[str, ...] = ()
    """Subsets to evaluate. Empty: the benchmark's default."""
    limit: Annotated[int | None, Bounds(gt=0)] = None
    """Maximum number of samples per subset. Default: all."""
    few_shot: Annotated[int | None, Bounds(ge=0)] = None
    """Number of few-shot examples in the prompt. Default: the benchmark's."""
    prompt_template: str | None = None
    """Prompt template that replaces the benchmark's own."""
    repeats: Annotated[int, Bounds(gt=0)] = 1
    """Answers per sample. Values above 1 require a temperature above 0."""
    max_tokens: Annotated[int | None, Bounds(gt=0)] = None
    """Maximum length of an answer in tokens, instead of the suite's."""
    higher_is_better: bool = True
    """Set to false for error rates and other metrics where lower is better."""


@dataclass(frozen=True, kw_only=True)
class Benchmark(BenchmarkSettings):
    """One benchmark of a suite."""

    name: str
    """Name in results, metrics and reports; unique in its suite."""
    adapter: str
    """`exact` or `choice` (built in, with a JSONL file), else the name of an EvalScope benchmark."""
    data: str | None = None
    """Absolute path of local data: a JSONL file for the built-in adapters, a folder for EvalScope's."""
    data_digest: str = ""
    """Hex SHA-256 of the data's content; EvalScope's own resume check does not cover it."""
    program: Program | None = None
    """The evaluator. None: EvalScope."""
    measured_with: tuple[tuple[str, str], ...] = ()
    """Imported results: all settings that affect the scores, by name, instead of the suite's. Otherwise empty."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Sampling parameters. All are always sent, because defaults differ between servers."""

    max_tokens: Annotated[int, Bounds(gt=0)] = 256
    """Maximum length of an answer, in tokens."""
    temperature: Annotated[float, Bounds(ge=0)] = 0.0
    """Sampling temperature; 0 is greedy decoding."""
    top_p: Annotated[float, Bounds(gt=0, le=1)] = 1.0
    """Nucleus sampling probability."""
    top_k: int = -1
    """Number of most likely tokens to sample from; -1: all."""
    seed: int = 0
    """Random seed sent with every request."""


@dataclass(frozen=True, kw_only=True)
class Screen:
    """How many samples of each benchmark are evaluated first: the larger of a number and a fraction, at most all."""

    samples: int = 0
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScreenPart:
    """Which samples of each benchmark are evaluated: its screen (`screening.screen_of`), or all others."""

    screen: Screen
    is_rest: bool = False


class DatasetHub(StrEnum):
    """Where EvalScope downloads the data of benchmarks without local files."""

    MODELSCOPE = "modelscope"
    HUGGINGFACE = "huggingface"


@dataclass(frozen=True, kw_only=True)
class AskingSettings:
    """Settings for sending requests: none changes a score, but batches change the rounding in bf16, which is noise."""

    concurrency: Annotated[int, Bounds(gt=0)] = 8
    """Concurrent requests across all benchmarks. With 1, every question is alone in its batch."""
    request_timeout_s: Annotated[float, Bounds(gt=0)] = 120.0
    """Timeout of one request, in seconds."""
    dataset_hub: DatasetHub = DatasetHub.MODELSCOPE
    """Hub from which benchmarks without `data` are downloaded: `modelscope` or `huggingface`."""


@dataclass(frozen=True, kw_only=True)
class Suite(AskingSettings):
    """What is measured at every checkpoint. `identity.suite_fingerprint` identifies its content."""

    name: str
    benchmarks: tuple[Benchmark, ...]
    generation: Generation = Generation()
    part: ScreenPart | None = None
    """None: all samples. Not part of any fingerprint: a sample's score does not depend on the other samples."""


@dataclass(frozen=True, kw_only=True)
class EvalPlan:
    """One unit of work, with everything that a worker needs. `id` is a content hash (`identity.make_plan`)."""

    id: str
    checkpoint: Checkpoint
    suite: Suite
    serve: ServeSpec
    loads: tuple[ProbeLoad, ...] = ()
    reference: Checkpoint | None = None
    """Checkpoint whose latency is the reference, interleaved on the same engine. None: no reference."""
    calibration: int = 0
    """Number of the calibration, from 1: the suite is evaluated twice (`execute.worker.passes`). 0: no calibration."""
    sweep: SweepCell | None = None
    """Set for a plan of a sweep. None: a plan of the run itself."""
    whole: tuple[Benchmark, ...] = ()
    """All benchmarks of the suite, if the results of those not asked are known. Empty: all are asked."""


# --- what came out


class SampleStatus(StrEnum):
    """Outcome of one planned sample. Only `scored` and `truncated` have a score."""

    SCORED = "scored"
    TRUNCATED = "truncated"
    """The answer reached max_tokens, and its text up to there was scored."""
    UNSCORED = "unscored"
    """Answered, but the scorer could not score the answer."""
    ERROR = "error"
    """No valid answer: context overflow, interrupted stream, dead server, NaN."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleScore:
    """One sample at one repeat. `sample_id` is a content key that pairs the same question across checkpoints."""

    sample_id: str
    subset: str
    repeat: int = 0
    score: float | None
    status: SampleStatus
    cluster_id: str = ""
    """Cluster of dependent samples, such as one passage or subject. Empty: the sample is its own cluster."""
    prompt: str = ""
    target: str = ""
    answer: str = ""
    output_tokens: int | None = None
    answer_ms: int | None = field(default=None, compare=False)
    """Time until the answer was complete. None: unknown. The same sample has another one each time."""
    detail: str = ""
    """Why it has no score."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Scores of one benchmark at one checkpoint."""

    benchmark: str
    fingerprint: str
    """`identity.benchmark_fingerprint`: only results with equal fingerprints are comparable."""
    metric: str
    samples: tuple[SampleScore, ...]
    """One entry for every planned sample and repeat; empty if there is an aggregate."""
    duration_s: float
    """Its share of the time that all benchmarks took together; the shares add up to that time."""
    higher_is_better: bool = True
    left_out: int = 0
    """Number of samples that were not evaluated, because the plan covers only a part of the benchmark."""
    has_texts: bool = True
    """False: answers and details of the samples are empty, because they were deleted to save space."""
    input_tokens: int | None = None
    """Of all answered requests, as counted by the server. None: it reported no counts."""
    output_tokens: int | None = None
    aggregate: Aggregate | None = None
    """Imported results without samples: the known summary. Otherwise None."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkFailure:
    """A benchmark without a result, and the reason."""

    benchmark: str
    fingerprint: str
    code: str
    message: str
    hint: str
    retryable: bool


Outcome = EvalResult | BenchmarkFailure


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Resources that one plan used. Seconds are wall-clock time unless stated otherwise."""

    loading_s: float
    evaluating_s: float
    probing_s: float
    """With a latency reference, this includes loading the reference, and the checkpoint again."""
    input_tokens: int | None = None
    """Of the benchmarks' requests. None: the server reported no counts."""
    output_tokens: int | None = None
    gpu_s: float | None = None
    """Number of the engine's GPUs times seconds. None: no GPUs, or not started by the tracker."""
    cpu_s: float | None = None
    """CPU time of the engine's processes. None: it uses GPUs, was not started by the tracker, or cannot be read."""

    @property
    def wall_s(self) -> float:
        """Total time from the start of the plan to its end."""
        return self.loading_s + self.evaluating_s + self.probing_s


@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """The results of one plan. Every benchmark and load has one outcome; in a calibration, each benchmark has two."""

    plan: EvalPlan
    outcomes: tuple[Outcome, ...]
    """In the order of the benchmarks. In a calibration: all of the first pass, then all of the second."""
    probes: tuple[ProbeOutcome, ...]
    engine: EngineInfo | None
    """None: no engine could be started."""
    started_at: datetime
    finished_at: datetime
    reference_probes: tuple[ReferenceOutcome, ...] = ()
    """One for each load of a plan with a reference."""
    cost: Cost | None = None
    """None: imported results, or the plan failed before its cost was measured."""

    @property
    def results(self) -> tuple[EvalResult, ...]:
        """The outcomes that are not failures."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, EvalResult))
