"""Tables of tracker.toml: what is measured at every checkpoint, and who serves it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.evaluate.lm_eval.command import LM_EVAL, METRIC
from eval_jobs.execute.worker.hours import hours_of
from eval_jobs.harness.known_tasks import chance_of_metric, chance_of_task
from eval_jobs.types import (
    AskingSettings,
    Benchmark,
    BenchmarkSettings,
    Between,
    EngineKind,
    Generation,
    LoadSettings,
    OnlyWhen,
    ProbeLoad,
    Screen,
    ServeSettings,
    ServeSpec,
)
from tracker.config.programs import MAY_BE_A_NAME, Options, program_of
from tracker.config.section import AnchoredPath, Section, folder_of, record_of, without_key
from tracker.domain.checkpoints.buckets import SCHEME
from tracker.domain.verdicts.screening import Screening

EXACT = "exact"
OWN_ADAPTERS = (EXACT, "choice")
EVALSCOPE = "evalscope"

SMALLEST_SCREEN = 20
"""Of fewer samples hardly any loss looks suspicious; of fewer than 10 none can."""

USUAL_SCREEN = 250
"""Samples that a share is never fewer than, where no number is set: of 500 a loss of 3 points is mostly suspicious at
once, of 200 one of 4 (docs/how-to/screening.md)."""

FIRST = "first"
"""As `probe.reference`: the run's first checkpoint."""

_MEMORY_SHARE = "--gpu-memory-utilization"


class OnlyWhenSection(Section, OnlyWhen):
    """Conditions for starting an evaluation. Once started, it finishes. `tracker evaluate` and `gate` ignore them."""

    @model_validator(mode="after")
    def _hours_can_be_read(self) -> OnlyWhenSection:
        if self.hours and not self.time_zone:
            raise ValueError('hours requires time_zone, such as "Europe/Berlin"')
        try:
            hours_of(record_of(OnlyWhen, self))
        except ConfigError as error:
            raise ValueError(f"{error.message}: {error.hint}") from error
        return self


class ServeSection(Section, ServeSettings):
    """The inference engine that serves checkpoints during evaluation."""

    leading = ("engine", "options")
    engine: Annotated[EngineKind | str, MAY_BE_A_NAME] = Field(default=EngineKind.VLLM, union_mode="left_to_right")
    """`vllm`: a local vLLM process. `sglang`: a local SGLang process; the vllm settings below apply to it too
    (experimental). `remote`: an existing OpenAI-compatible server. Or the name of a plugin engine."""
    options: Options = Field(default={})
    """Settings of a plugin engine."""
    only_when: OnlyWhenSection = OnlyWhenSection()

    @field_validator("args")
    @classmethod
    def _args_set_nothing_that_has_a_setting(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = (argument.split("=", 1)[0].replace("_", "-") for argument in value)
        if any(len(name) > len("--gpu") and _MEMORY_SHARE.startswith(name) for name in names):
            raise ValueError(f"remove {_MEMORY_SHARE}: use serve.gpu_memory_utilization")
        return value

    @field_validator("engine")
    @classmethod
    def _names_the_plugin(cls, value: EngineKind | str) -> EngineKind | str:
        if value is EngineKind.PLUGIN:
            raise ValueError("use the name of the plugin engine")
        return value

    @field_validator("base_url")
    @classmethod
    def _address_holds_no_key(cls, value: str) -> str:
        return without_key(value, instead="set serve.api_key_env to the name of an environment variable")

    @model_validator(mode="after")
    def _engine_has_what_it_needs_and_no_more(self) -> ServeSection:
        if self.options and isinstance(self.engine, EngineKind):
            raise ValueError(f"{self.engine} is a built-in engine: remove options")
        if self.engine is EngineKind.REMOTE and not self.base_url:
            raise ValueError('engine = "remote" requires base_url, such as "http://127.0.0.1:8000/v1"')
        if self.engine is EngineKind.SGLANG and self.between is Between.SLEEP:
            raise ValueError('between = "sleep" requires vLLM: with engine = "sglang" use "stay" or "stop"')
        return self

    def to_spec(self) -> ServeSpec:
        """Return the record for the engine; of one of another package without its version."""
        only_when = record_of(OnlyWhen, self.only_when)
        if isinstance(self.engine, EngineKind):
            return record_of(ServeSpec, self, only_when=only_when)
        program = program_of(self.engine, self.options)
        return record_of(ServeSpec, self, engine=EngineKind.PLUGIN, program=program, only_when=only_when)


class ScreenSection(Section):
    """Evaluate part of each benchmark first, the rest only if a loss is suspected. Off if `samples` and `share` are 0.

    docs/how-to/screening.md says what that costs in what is found.
    """

    samples: int = Field(
        default=0,
        ge=0,
        description="Minimum number of samples to screen in each benchmark; smaller benchmarks are evaluated "
        f"in full. 0: {USUAL_SCREEN} if `share` is set. Other values below {SMALLEST_SCREEN} mean {SMALLEST_SCREEN}.",
    )
    share: float = Field(default=0.0, ge=0, le=1)
    """Fraction of a benchmark to screen, such as 0.08. The larger of `samples` and `share` applies."""
    every: int = Field(default=50, gt=0)
    """Evaluate every Nth checkpoint in full."""
    first: int = Field(default=14, ge=1)
    """Evaluate the first N checkpoints in full, to estimate the run's noise."""

    def to_screening(self) -> Screening | None:
        """Return the record for the watcher; None: everything is asked at every checkpoint."""
        if not self.samples and not self.share:
            return None
        screen = Screen(samples=max(self.samples or USUAL_SCREEN, SMALLEST_SCREEN), share=self.share)
        return Screening(screen=screen, every=self.every, first=self.first)


class SuiteSection(Section, AskingSettings, Generation):
    """Settings shared by all benchmarks. A change of generation starts a new series of results."""

    leading = ("name", "concurrency", "request_timeout_s")
    name: str = Field(default="default", min_length=1)
    """Name of the suite."""
    screen: ScreenSection = ScreenSection()
    lm_eval: str = "lm_eval"
    """Command of lm-evaluation-harness, for benchmarks with `evaluator = "lm-eval"`: a path, or
    a name in the tracker's environment or in PATH."""


class BenchmarkSection(Section, BenchmarkSettings):
    """One benchmark. Two lines are enough: `benchmark = "exact"` and `data = "my.jsonl"`."""

    leading = ("benchmark", "data", "evaluator", "options", "name")
    benchmark: str = Field(min_length=1)
    """`exact` (exact match), `choice` (multiple choice) or the name of an EvalScope benchmark, such as `gsm8k`."""
    data: AnchoredPath | None = None
    """JSONL file for `exact` and `choice`; folder with a local copy of the data for other benchmarks."""
    evaluator: Annotated[str, MAY_BE_A_NAME] = EVALSCOPE
    """`evalscope`, `lm-eval` (a task of lm-evaluation-harness) or the name of a plugin evaluator."""
    options: Options = Field(default={})
    """Settings of lm-eval or a plugin evaluator."""
    name: str = ""
    """Name in results. Default: the name of the data file or of the benchmark."""
    chance: float | None = Field(default=None, ge=0, le=1)
    """Score of random guessing, such as 0.25; a peak above it counts as learned. Default: 0 for `exact`, 1 / choices
    for `choice`, and known for `mmlu`, `arc` and similar benchmarks."""

    @property
    def is_own(self) -> bool:
        """Whether it is one of our own, over a JSONL file."""
        return self.benchmark in OWN_ADAPTERS and self.evaluator == EVALSCOPE

    @model_validator(mode="after")
    def _evaluator_has_what_it_needs_and_no_more(self) -> BenchmarkSection:
        if self.options and self.evaluator == EVALSCOPE:
            raise ValueError("EvalScope does not use options: set evaluator, or remove options")
        if self.is_own and self.data is None:
            raise ValueError(f'benchmark = "{self.benchmark}" requires data, the path of a JSONL file')
        return self

    def resolved_name(self) -> str:
        """Return the name that results carry."""
        if self.name:
            return self.name
        if self.is_own and self.data is not None:
            return self.data.stem
        return self.benchmark

    def resolved_chance(self) -> float | None:
        """Return the score of guessing; None where it is not known without reading data."""
        if self.chance is not None or not self.higher_is_better:
            return self.chance
        if self.is_own:
            return 0.0 if self.benchmark == EXACT else None
        if self.evaluator == EVALSCOPE:
            return chance_of_task(self.benchmark)
        if self.evaluator == LM_EVAL and self.data is None:  # else a task of the user's own
            return chance_of_metric(self.benchmark, str(self.options.get(METRIC, "acc")))
        return None

    def to_benchmark(self, *, data_digest: str) -> Benchmark:
        """Return the record for the evaluator."""
        return record_of(
            Benchmark,
            self,
            name=self.resolved_name(),
            adapter=self.benchmark,
            data=None if self.data is None else str(self.data),
            data_digest=data_digest,
            program=None if self.evaluator == EVALSCOPE else program_of(self.evaluator, self.options),
        )


class ProbeSection(Section, LoadSettings):
    """Latency measurement at every checkpoint."""

    leading = ("enabled", "requests", "concurrency")
    enabled: bool = True
    """Measure latency at every checkpoint."""
    reference: str = ""
    """Reference checkpoint for latency verdicts, measured alternately with each checkpoint: `first` (the run's
    first checkpoint) or a path. Empty: earlier checkpoints, and verdicts are `suspect` at most."""

    @field_validator("reference")
    @classmethod
    def _may_be_relative(cls, value: str, info: ValidationInfo) -> str:
        if value in {"", FIRST} or value.startswith(SCHEME):
            return value
        return str(folder_of(info) / value)

    def to_loads(self) -> tuple[ProbeLoad, ...]:
        """Return the loads, none when the probe is off."""
        if self.enabled:
            return (record_of(ProbeLoad, self),)
        return ()
