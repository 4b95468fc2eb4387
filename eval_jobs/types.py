"""The records that flow through the system: checkpoint -> plan -> record.

All are frozen, compare by value and know nothing of files, clocks or JSON (see `codec` for that).
Times are timezone-aware UTC; durations carry their unit in the name; a failure is a value, never a score of 0.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from eval_jobs.records.bounds import Bounds
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
"""What is defined elsewhere and belongs here too."""

# --- what is evaluated


class CheckpointFormat(StrEnum):
    """How the weights of a checkpoint are stored."""

    FULL = "full"
    """A Hugging Face model folder: config.json and safetensors, in one file or in shards."""
    LORA = "lora"
    """A PEFT adapter folder: adapter_config.json and adapter_model.safetensors, served beside its base."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One finished checkpoint, held by our own pin."""

    run_id: str
    step: int
    uri: str
    """Absolute path of the pin; what the engine loads."""
    source_uri: str
    """Absolute path of the trainer's own folder, which may be gone by now."""
    format: CheckpointFormat
    digest: str
    """Hex SHA-256 of the weights' bytes: a step that was written again has another one."""
    ready_at: datetime
    """When the trainer finished it: the newest modification time of its files."""
    base_model: str | None = None
    """For LORA: path of the base model."""
    unpickled: bool = False
    """Whether its weights came out of a pickle, which can run code; part of no identity."""
    files_digest: str = ""
    """Hash of what is served beside the weights, such as the tokenizer; empty: not known."""


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
    """`exact` or `choice` (our own, over a JSONL file), else the name of an EvalScope benchmark."""
    data: str | None = None
    """Absolute path of local data: a JSONL file for our own adapters, a folder for EvalScope's."""
    data_digest: str = ""
    """Hex SHA-256 of the data's content; EvalScope's own resume check does not cover it."""
    program: Program | None = None
    """The evaluator, where it is not EvalScope."""
    measured_with: tuple[tuple[str, str], ...] = ()
    """Imported results: all that decided the scores, by name; the suite's settings mean nothing then. Else empty."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """Sampling parameters; every one is always sent, because a server's defaults differ."""

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
    """How many samples of each benchmark are asked first: the larger of both, and all where there are no more."""

    samples: int = 0
    share: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScreenPart:
    """Which samples of each benchmark are asked: its screen (`screening.screen_of`), or all others."""

    screen: Screen
    is_rest: bool = False


@dataclass(frozen=True, kw_only=True)
class AskingSettings:
    """How a person may have questions asked. The concurrency is in the fingerprint: batches change bf16 results."""

    concurrency: Annotated[int, Bounds(gt=0)] = 8
    """Concurrent requests across all benchmarks. With 1, every question is alone in its batch."""
    request_timeout_s: Annotated[float, Bounds(gt=0)] = 120.0
    """Timeout of one request, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Suite(AskingSettings):
    """What is measured at every checkpoint. `identity.suite_fingerprint` names its content."""

    name: str
    benchmarks: tuple[Benchmark, ...]
    generation: Generation = Generation()
    part: ScreenPart | None = None
    """None: all samples. Part of no fingerprint: a sample's score does not depend on which others are asked."""


@dataclass(frozen=True, kw_only=True)
class EvalPlan:
    """One unit of work: everything that a worker needs. `id` is a content hash (`identity.make_plan`)."""

    id: str
    checkpoint: Checkpoint
    suite: Suite
    serve: ServeSpec
    loads: tuple[ProbeLoad, ...] = ()
    reference: Checkpoint | None = None
    """What the checkpoint's latency is compared with, interleaved on the same engine; None: measured alone."""
    calibration: int = 0
    """Above 0: the suite is asked twice (`execute.twice`), to see what repeating it changes; which time that is."""
    sweep: SweepCell | None = None
    """Asked by a sweep; None: by the run itself."""


# --- what came out


class SampleStatus(StrEnum):
    """What happened to one planned sample. Only `scored` and `truncated` carry a score."""

    SCORED = "scored"
    TRUNCATED = "truncated"
    """The answer hit max_tokens; it was scored as far as it went."""
    UNSCORED = "unscored"
    """Answered, and the scorer could not score it."""
    ERROR = "error"
    """Never answered properly: context overflow, cut stream, dead server, NaN."""


@dataclass(frozen=True, kw_only=True)
class SampleScore:
    """One sample at one repeat. `sample_id` is a content key, so the same question pairs across checkpoints."""

    sample_id: str
    subset: str
    repeat: int = 0
    score: float | None
    status: SampleStatus
    cluster_id: str = ""
    """Samples that share one (a passage, a subject) are not independent; empty: its own cluster."""
    prompt: str = ""
    target: str = ""
    answer: str = ""
    output_tokens: int | None = None
    detail: str = ""
    """Why it is not scored."""


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """Scores of one benchmark at one checkpoint."""

    benchmark: str
    fingerprint: str
    """`identity.benchmark_fingerprint`: only equal ones may be compared."""
    metric: str
    samples: tuple[SampleScore, ...]
    """One entry for every planned sample and repeat; none where there is an aggregate."""
    duration_s: float
    """Its share of the time that all benchmarks took together, so durations add up to that."""
    higher_is_better: bool = True
    left_out: int = 0
    """Samples of the benchmark that were not asked, because the plan was for a part of it."""
    has_texts: bool = True
    """False: answers and details of the samples are empty, because they were deleted to save space."""
    input_tokens: int | None = None
    """Of all answered requests, as the server counted them; None: it did not say for any."""
    output_tokens: int | None = None
    aggregate: Aggregate | None = None
    """Imported results without samples: what is known instead."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkFailure:
    """A benchmark that gave no result, and why."""

    benchmark: str
    fingerprint: str
    code: str
    message: str
    hint: str
    retryable: bool


Outcome = EvalResult | BenchmarkFailure


@dataclass(frozen=True, kw_only=True)
class Canary:
    """What an engine answered to one fixed prompt, greedily; equal weights on an equal engine give it bit by bit."""

    prompt: tuple[int, ...]
    """Token ids."""
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token of the answer."""


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """Which engine answered, and how the weights got into it."""

    name: str
    version: str
    load_method: str
    """`cold`, `swap`, `adapter`, `remote` or `imported`."""
    load_s: float
    log: str
    """Path of the engine's log, empty for a remote one."""
    machine: str = ""
    """Hash of what its speed depends on: host, CPU, GPUs, driver; for a remote one its address. Empty: not known."""
    device: str = ""
    """What computes, in words: two machines of one kind have the same. Empty: not known."""
    gpus: int = 0
    """How many GPUs it computes on; 0: none, or it is not ours."""
    is_batch_invariant: bool = False
    """Whether an answer does not depend on what else is asked at the same time, to the bit."""
    canaries: tuple[Canary, ...] = ()
    """Asked after the weights were loaded and before anything else; empty: not asked."""
    load_reason: str = ""
    """Why it was loaded this way, in words; empty: not known, or nothing to choose from."""
    certificate: str = ""
    """Id of the certificate that this way gives the same answers as a cold start; empty: it was none, or a cold one."""

    @property
    def is_ours(self) -> bool:
        """Whether we started it: it goes by a random name and knows no key, so who says otherwise is somebody else."""
        return self.name in (EngineKind.VLLM, EngineKind.SGLANG)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server that serves one checkpoint now."""

    base_url: str
    model: str
    api_key_env: str
    """Name of the environment variable with the key; empty: no key is needed."""
    info: EngineInfo
    tokenizer: str = ""
    """Folder of the checkpoint's tokenizer, empty when unknown."""
    client_cores: tuple[int, ...] = ()
    """Of this machine, where a client with much to do does not slow the engine down; empty: anywhere."""
    client_niceness: int = 0
    """Of such a client, so that the engine comes first."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one plan took. Seconds are of a clock on the wall unless said otherwise."""

    loading_s: float
    evaluating_s: float
    probing_s: float
    """Where there is a latency reference, also loading that one and the checkpoint again."""
    input_tokens: int | None = None
    """Of the benchmarks' requests; None: the server told of none."""
    output_tokens: int | None = None
    gpu_s: float | None = None
    """GPUs of the engine times seconds; None: it has none, or is not ours."""
    cpu_s: float | None = None
    """CPU time of the engine's processes; None: it computes on a GPU, is not ours, or this cannot be read."""

    @property
    def wall_s(self) -> float:
        """All of it, from the start of the plan to its end."""
        return self.loading_s + self.evaluating_s + self.probing_s


@dataclass(frozen=True, kw_only=True)
class EvalRecord:
    """All that came out of one plan. Every benchmark and load of the plan has exactly one outcome."""

    plan: EvalPlan
    outcomes: tuple[Outcome, ...]
    """Of a calibration every benchmark has two: all of the first pass, then all of the second."""
    probes: tuple[ProbeOutcome, ...]
    engine: EngineInfo | None
    """None when no engine could be started."""
    started_at: datetime
    finished_at: datetime
    reference_probes: tuple[ReferenceOutcome, ...] = ()
    """One for each load of a plan with a reference."""
    cost: Cost | None = None
    """None: others measured it."""

    @property
    def results(self) -> tuple[EvalResult, ...]:
        """Those of its outcomes that are no failures."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, EvalResult))
