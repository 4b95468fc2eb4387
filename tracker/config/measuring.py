"""Tables of tracker.toml: what is measured at every checkpoint, and who serves it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from eval_jobs.errors import ConfigError
from eval_jobs.execute.worker.hours import hours_of
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
from tracker.config.programs import Options, anchored_options, checked_name, program_of
from tracker.config.section import Section, record_of, without_key
from tracker.domain.verdicts.screening import Screening

EXACT = "exact"
OWN_ADAPTERS = (EXACT, "choice")
EVALSCOPE = "evalscope"

SMALLEST_SCREEN = 20
"""Of fewer samples hardly any loss looks suspicious; of fewer than 10 none can."""

USUAL_SCREEN = 500
"""Samples that a share is never fewer than, where no number is set: of 500 a loss of 3 points is mostly suspicious at
once, of 200 one of 4 (docs/budget.md)."""

FIRST = "first"
"""As `probe.reference`: the run's first checkpoint."""


_MEMORY_SHARE = "--gpu-memory-utilization"


class OnlyWhenSection(Section, OnlyWhen):
    """When a worker may begin with a checkpoint; one that it has begun with it finishes. `tracker run` never waits."""

    @model_validator(mode="after")
    def _hours_can_be_read(self) -> OnlyWhenSection:
        if self.hours and not self.time_zone:
            raise ValueError('hours need a time_zone, for example "Europe/Berlin"')
        try:
            hours_of(record_of(OnlyWhen, self))
        except ConfigError as error:
            raise ValueError(f"{error.message}: {error.hint}") from error
        return self


class ServeSection(Section, ServeSettings):
    """Who serves a checkpoint while it is evaluated."""

    leading = ("engine", "options")
    engine: EngineKind | str = Field(default=EngineKind.VLLM, union_mode="left_to_right")
    """`vllm`: started here, as a process. `sglang`: the same with SGLang, and what is said of vllm here holds for it
    too; it was only tried on a stand-in (docs/gpu.md). `remote`: an OpenAI-compatible server that others run. Or an
    engine of another package (docs/extending.md)."""
    options: Options = Field(default={})
    """Settings of an engine of another package."""
    only_when: OnlyWhenSection = OnlyWhenSection()

    @field_validator("args")
    @classmethod
    def _args_set_nothing_that_has_a_setting(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = (argument.split("=", 1)[0].replace("_", "-") for argument in value)
        if any(len(name) > len("--gpu") and _MEMORY_SHARE.startswith(name) for name in names):
            raise ValueError(f"leave out {_MEMORY_SHARE}: it has a setting, serve.gpu_memory_utilization")
        return value

    @field_validator("engine")
    @classmethod
    def _may_be_a_name(cls, value: EngineKind | str) -> EngineKind | str:
        if value is EngineKind.PLUGIN:
            raise ValueError("name the engine itself, as its package calls it")
        if isinstance(value, EngineKind):
            return value
        return checked_name(value)

    @model_validator(mode="after")
    def _options_are_for_others(self) -> ServeSection:
        if self.options and isinstance(self.engine, EngineKind):
            raise ValueError(f"options are for an engine of another package, and {self.engine} is built in")
        return self

    @field_validator("base_url")
    @classmethod
    def _address_holds_no_key(cls, value: str) -> str:
        return without_key(value, instead="set an environment variable and name it with serve.api_key_env")

    @model_validator(mode="after")
    def _remote_needs_an_address(self) -> ServeSection:
        if self.engine is EngineKind.REMOTE and not self.base_url:
            raise ValueError('engine = "remote" needs base_url, for example "http://127.0.0.1:8000/v1"')
        return self

    @model_validator(mode="after")
    def _sglang_does_not_sleep(self) -> ServeSection:
        if self.engine is EngineKind.SGLANG and self.between is Between.SLEEP:
            raise ValueError('between = "sleep" is for vLLM: with engine = "sglang" write "stay" or "stop"')
        return self

    def to_spec(self) -> ServeSpec:
        """Return the record for the engine; of one of another package without its version."""
        only_when = record_of(OnlyWhen, self.only_when)
        if isinstance(self.engine, EngineKind):
            return record_of(ServeSpec, self, only_when=only_when)
        program = program_of(self.engine, self.options)
        return record_of(ServeSpec, self, engine=EngineKind.PLUGIN, program=program, only_when=only_when)

    def anchored(self, folder: Path) -> ServeSection:
        """Return it with relative paths counted from `folder`."""
        return self.model_copy(update={"options": anchored_options(self.options, folder)})


class ScreenSection(Section):
    """A part of each benchmark first, the others only where it looks suspicious. Off while both sizes are 0.

    docs/budget.md says what that costs in what is found.
    """

    samples: int = Field(
        default=0,
        ge=0,
        description="Samples of each benchmark that are asked first, at least; a benchmark that has no more is asked "
        f"whole. 0: {USUAL_SCREEN} where a share is set. Never fewer than {SMALLEST_SCREEN}.",
    )
    share: float = Field(default=0.0, ge=0, le=1)
    """The same as a share of the benchmark; the larger of both counts. 0.2 is a good one."""
    every: int = Field(default=10, gt=0)
    """Every so-many-th checkpoint is asked everything."""
    first: int = Field(default=20, ge=1)
    """So many checkpoints at the beginning of a run are asked everything: they show how much the scores of a healthy
    run move."""

    def to_screening(self) -> Screening | None:
        """Return the record for the watcher; None: everything is asked at every checkpoint."""
        if not self.samples and not self.share:
            return None
        screen = Screen(samples=max(self.samples or USUAL_SCREEN, SMALLEST_SCREEN), share=self.share)
        return Screening(screen=screen, every=self.every, first=self.first)


class SuiteSection(Section, AskingSettings, Generation):
    """Settings that all benchmarks share. Results compare only when all but the time-out are equal."""

    leading = ("name", "concurrency", "request_timeout_s")
    name: str = Field(default="default", min_length=1)
    """Name of the suite."""
    screen: ScreenSection = ScreenSection()
    lm_eval: str = "lm_eval"
    """Command of lm-evaluation-harness, for benchmarks with `evaluator = "lm-eval"`: a path, such as
    `/envs/lm-eval/bin/lm_eval`, or a name that is searched for beside this program and in PATH."""


class BenchmarkSection(Section, BenchmarkSettings):
    """One benchmark. Two lines are enough: `benchmark = "exact"` and `data = "my.jsonl"`."""

    leading = ("benchmark", "data", "evaluator", "options", "name")
    benchmark: str = Field(min_length=1)
    """`exact` (the answer must equal the target), `choice` (multiple choice) or the name of an EvalScope benchmark such
    as `gsm8k`."""
    data: Path | None = None
    """A JSONL file for `exact` and `choice`; a folder with local data for the others."""
    evaluator: str = EVALSCOPE
    """`evalscope`, `lm-eval` (a task of lm-evaluation-harness, docs/benchmarks.md) or an evaluator of another package
    (docs/extending.md)."""
    options: Options = Field(default={})
    """Settings of another evaluator than EvalScope."""
    name: str = ""
    """Name in results; by default the file's or the benchmark's."""
    chance: float | None = Field(default=None, ge=0, le=1)
    """Score of guessing, such as 0.25 (0 for `exact`): what lies above it counts as learned, also when the first
    checkpoint could do it already, so that losing it is called `forgotten`."""

    @field_validator("evaluator")
    @classmethod
    def _may_be_a_name(cls, value: str) -> str:
        return checked_name(value)

    @model_validator(mode="after")
    def _options_are_for_others(self) -> BenchmarkSection:
        if self.options and self.evaluator == EVALSCOPE:
            raise ValueError("options are for another evaluator than EvalScope: name it with evaluator")
        return self

    @property
    def is_own(self) -> bool:
        """Whether it is one of our own, over a JSONL file."""
        return self.benchmark in OWN_ADAPTERS and self.evaluator == EVALSCOPE

    @model_validator(mode="after")
    def _own_adapters_need_data(self) -> BenchmarkSection:
        if self.is_own and self.data is None:
            raise ValueError(f'benchmark = "{self.benchmark}" needs data, the path of a JSONL file')
        return self

    def resolved_name(self) -> str:
        """Return the name that results carry."""
        if self.name:
            return self.name
        if self.is_own and self.data is not None:
            return self.data.stem
        return self.benchmark

    def resolved_chance(self) -> float | None:
        """Return the score of guessing, None where it is not known."""
        if self.chance is None and self.is_own and self.benchmark == EXACT:
            return 0.0
        return self.chance

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

    def anchored(self, folder: Path) -> BenchmarkSection:
        """Return it with relative paths counted from `folder`."""
        options = anchored_options(self.options, folder)
        return self.model_copy(update={"data": self.data and folder / self.data, "options": options})


class ProbeSection(Section, LoadSettings):
    """Latency measurement at every checkpoint."""

    leading = ("enabled", "requests", "concurrency")
    enabled: bool = True
    """false: no latency measurement."""
    reference: str = ""
    """What latency is compared with, interleaved: `first` (the run's first checkpoint) or the path of a checkpoint. It
    costs two more loads of weights per checkpoint; medians are judged from requests = 50 on, 95th percentiles from 100.
    Empty: each is timed alone."""

    def to_loads(self) -> tuple[ProbeLoad, ...]:
        """Return the loads, none when the probe is off."""
        if self.enabled:
            return (record_of(ProbeLoad, self),)
        return ()
