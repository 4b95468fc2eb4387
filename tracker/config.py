"""tracker.toml -> a validated, frozen configuration -> the records that the use cases work with.

    config = load_config(Path("tracker.toml"))
    config.serve.to_spec()

Paths in the file are relative to the file. Every setting is described here once; docs/settings.md is made from it.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from eval_jobs.errors import ConfigError
from eval_jobs.types import Benchmark, EngineKind, Generation, ProbeLoad, ServeSpec, Suite
from tracker.domain.discovery import WatchOptions
from tracker.domain.types import USUAL_CHECKPOINTS, LatencyPolicy, Phase, Pinned, Policy

DEFAULT_NAME = "tracker.toml"

EXACT = "exact"
OWN_ADAPTERS = (EXACT, "choice")

FIRST = "first"
"""As `probe.reference`: the run's first checkpoint."""


class Section(BaseModel):
    """A table of the file: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSection(Section):
    """Which training run is watched."""

    name: str = Field(min_length=1, description="Name of the run in tables, reports and MLflow.")
    output_dir: Path = Field(description="Folder that the trainer writes its checkpoints into. It may not exist yet.")
    state_dir: Path = Field(
        default=Path(".tracker"), description="Where pins, results, logs and the default MLflow store are kept."
    )


class WatchSection(Section):
    """How checkpoints are found."""

    pattern: str = Field(
        default="checkpoint-*", description="Folder names of checkpoints; the number at the end is the step."
    )
    settle_s: float = Field(default=3.0, gt=0, description="How long files must stay unchanged, in seconds.")
    rescan_s: float = Field(
        default=10.0, gt=0, description="Seconds between two looks at the disk when no file event comes."
    )
    polling: bool = Field(
        default=False, description="Do not rely on file events: needed on network file systems, which have none."
    )

    def to_options(self) -> WatchOptions:
        """Return the record for the checkpoint source."""
        return WatchOptions(pattern=self.pattern, settle_s=self.settle_s, rescan_s=self.rescan_s, polling=self.polling)


class ServeSection(Section):
    """Who serves a checkpoint while it is evaluated."""

    engine: EngineKind = Field(
        default=EngineKind.VLLM,
        description="`vllm`: started here, as a process. `remote`: an OpenAI-compatible server that others run.",
    )
    python: str = Field(
        default="",
        description="vllm: interpreter of the environment that holds vLLM (on a GPU machine, the one with CUDA vLLM). "
        "Empty: the environment of the tracker.",
    )
    dtype: str = Field(default="auto", description="vllm: data type of the weights in memory, as in `--dtype`.")
    max_model_len: int | None = Field(default=None, gt=0, description="vllm: longest context, in tokens.")
    args: tuple[str, ...] = Field(default=(), description="vllm: further arguments of its API server.")
    port: int = Field(default=0, ge=0, le=65535, description="vllm: port on 127.0.0.1; 0 picks a free one.")
    startup_timeout_s: float = Field(default=600.0, gt=0, description="How long the engine may take to answer.")
    trust_remote_code: bool = Field(
        default=False, description="vllm: run Python code that comes with a checkpoint. Only for code that you wrote."
    )
    base_url: str = Field(default="", description="remote: address, such as `http://gpu7:8000/v1`.")
    model: str = Field(
        default="", description="remote: model to ask for; `{step}` and `{run}` are replaced. Empty: the only one."
    )
    api_key_env: str = Field(
        default="", description="remote: name of the environment variable that holds the key (never the key itself)."
    )

    @model_validator(mode="after")
    def _remote_needs_an_address(self) -> ServeSection:
        if self.engine is EngineKind.REMOTE and not self.base_url:
            raise ValueError('engine = "remote" needs base_url, for example "http://127.0.0.1:8000/v1"')
        return self

    def to_spec(self) -> ServeSpec:
        """Return the record for the engine."""
        return ServeSpec(**self.model_dump())


class SuiteSection(Section):
    """Settings that all benchmarks share. Results compare only when all but the time-out are equal."""

    name: str = Field(default="default", min_length=1, description="Name of the suite.")
    concurrency: int = Field(default=8, gt=0, description="Requests in flight at once.")
    request_timeout_s: float = Field(default=120.0, gt=0, description="How long one answer may take, in seconds.")
    max_tokens: int = Field(default=256, gt=0, description="Longest answer, in tokens.")
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy decoding.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus sampling.")
    top_k: int = Field(default=-1, description="-1: off.")
    seed: int = Field(default=0, description="Seed sent with every request.")


class BenchmarkSection(Section):
    """One benchmark. Two lines are enough: `benchmark = "exact"` and `data = "my.jsonl"`."""

    benchmark: str = Field(
        min_length=1,
        description="`exact` (the answer must equal the target), `choice` (multiple choice) or the name of an "
        "EvalScope benchmark such as `gsm8k`.",
    )
    data: Path | None = Field(
        default=None, description="A JSONL file for `exact` and `choice`; a folder with local data for the others."
    )
    name: str = Field(default="", description="Name in results; by default the file's or the benchmark's.")
    subsets: tuple[str, ...] = Field(default=(), description="Subsets to evaluate; empty: the benchmark's default.")
    limit: int | None = Field(default=None, gt=0, description="Samples per subset; default: all.")
    few_shot: int | None = Field(default=None, ge=0, description="Examples in the prompt; default: the benchmark's.")
    prompt_template: str | None = Field(default=None, description="Replaces the benchmark's prompt template.")
    repeats: int = Field(default=1, gt=0, description="Answers per sample; more than one needs a temperature above 0.")
    max_tokens: int | None = Field(default=None, gt=0, description="Longest answer, in place of the suite's.")
    higher_is_better: bool = Field(default=True, description="false for error rates and the like.")
    chance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Score of guessing, such as 0.25 (0 for `exact`): what lies above it counts as learned, also when "
        "the first checkpoint could do it already, so that losing it is called `forgotten`.",
    )

    @model_validator(mode="after")
    def _own_adapters_need_data(self) -> BenchmarkSection:
        if self.benchmark in OWN_ADAPTERS and self.data is None:
            raise ValueError(f'benchmark = "{self.benchmark}" needs data, the path of a JSONL file')
        return self

    def resolved_name(self) -> str:
        """Return the name that results carry."""
        if self.name:
            return self.name
        return self.data.stem if self.benchmark in OWN_ADAPTERS and self.data is not None else self.benchmark

    def resolved_chance(self) -> float | None:
        """Return the score of guessing, None where it is not known."""
        return 0.0 if self.chance is None and self.benchmark == EXACT else self.chance

    def to_benchmark(self, *, data_digest: str) -> Benchmark:
        """Return the record for the evaluator."""
        fields = self.model_dump(exclude={"benchmark", "name", "data", "chance"})
        return Benchmark(
            name=self.resolved_name(),
            adapter=self.benchmark,
            data=None if self.data is None else str(self.data),
            data_digest=data_digest,
            **fields,
        )


class ProbeSection(Section):
    """Latency measurement at every checkpoint."""

    enabled: bool = Field(default=True, description="false: no latency measurement.")
    requests: int = Field(default=32, gt=0, description="Requests that are timed.")
    concurrency: int = Field(default=4, gt=0, description="Requests in flight at once.")
    input_tokens: int = Field(default=64, gt=0, description="Length of a prompt.")
    output_tokens: int = Field(default=32, gt=1, description="Length of an answer; the end token is ignored.")
    warmup_requests: int = Field(default=2, ge=0, description="Requests before the timed ones.")
    seed: int = Field(default=0, description="Seed of the random prompts.")
    reference: str = Field(
        default="",
        description="What latency is compared with, interleaved: `first` (the run's first checkpoint) or the path of a "
        "checkpoint. It costs two more starts of the engine per checkpoint; medians are judged from requests = 50 on, "
        "95th percentiles from 100. Empty: each is timed alone.",
    )

    def to_loads(self) -> tuple[ProbeLoad, ...]:
        """Return the loads, none when the probe is off."""
        return (ProbeLoad(**self.model_dump(exclude={"enabled", "reference"})),) if self.enabled else ()


class PolicySection(Section):
    """What counts as a finding."""

    alpha: float = Field(default=0.05, gt=0, lt=1, description="Chance of any false alarm over a whole healthy run.")
    min_effect: float = Field(default=0.01, ge=0, lt=1, description="Smallest loss that is called a regression.")
    subset_min_effect: float = Field(
        default=0.05, ge=0, lt=1, description="Smallest loss of a single subset that is called a regression."
    )
    equivalence_margin: float = Field(
        default=0.01, gt=0, lt=1, description="Two scores shown to differ by less than this are called equivalent."
    )
    min_coverage: float = Field(
        default=0.95, gt=0, le=1, description="Smallest share of scored samples; below it the verdict is `missing`."
    )
    planned_checkpoints: int | None = Field(
        default=None,
        gt=0,
        description="Checkpoints that the run is expected to write; `alpha` is divided over them. Default: unknown, "
        "half of `alpha` for the first 100, a quarter for the next 200, and so on.",
    )
    baseline: str = Field(
        default="",
        description="`RUN@STEP` of an evaluated checkpoint that every other one is compared with as well: the base "
        "model, or the best of another run.",
    )

    @field_validator("baseline")
    @classmethod
    def _baseline_is_a_checkpoint(cls, value: str) -> str:
        run, _, step = value.rpartition("@")
        if value and not (run and step.isdecimal()):
            raise ValueError("write RUN@STEP, for example base@0")
        return value

    def to_policy(self, phases: tuple[Phase, ...], chance: dict[str, float]) -> Policy:
        """Return the record for the judge."""
        run, _, step = self.baseline.rpartition("@")
        pinned = Pinned(run_id=run, step=int(step)) if run else None
        latency = LatencyPolicy(alpha=self.alpha, planned_checkpoints=self.planned_checkpoints or USUAL_CHECKPOINTS)
        plain = self.model_dump(exclude={"baseline"})
        return Policy(**plain, pinned=pinned, phases=phases, latency=latency, chance=chance)


class PhaseSection(Section):
    """A stretch of training with its own data: the history of its jitter starts anew there."""

    name: str = Field(min_length=1, description="Name of the phase in reports.")
    from_step: int = Field(ge=0, description="First step of the phase.")


class TrackingSection(Section):
    """Where MLflow keeps the results."""

    enabled: bool = Field(default=True, description="false: write nothing to MLflow.")
    uri: str = Field(default="", description="MLflow tracking URI; default: a SQLite store in `run.state_dir`.")
    experiment: str = Field(default="", description="MLflow experiment; default: the run's name.")
    run_id: str = Field(
        default="", description="The trainer's own MLflow run, to write into it; default: found by its output folder."
    )


class Config(Section):
    """The whole file."""

    run: RunSection
    watch: WatchSection = WatchSection()
    serve: ServeSection = ServeSection()
    suite: SuiteSection = SuiteSection()
    benchmark: tuple[BenchmarkSection, ...] = Field(min_length=1)
    probe: ProbeSection = ProbeSection()
    policy: PolicySection = PolicySection()
    phase: tuple[PhaseSection, ...] = ()
    tracking: TrackingSection = TrackingSection()

    @model_validator(mode="after")
    def _benchmark_names_are_unique(self) -> Config:
        names = [b.resolved_name() for b in self.benchmark]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"two benchmarks are called {twice[0]!r}: give one of them another `name`")
        return self

    @model_validator(mode="after")
    def _a_remote_reference_is_asked_for_by_step(self) -> Config:
        serve = self.serve
        if self.probe.reference and serve.engine is EngineKind.REMOTE and "{step}" not in serve.model:
            raise ValueError("probe.reference needs a serve.model with {step} in it, else a model meets itself")
        return self

    @model_validator(mode="after")
    def _phases_are_in_order(self) -> Config:
        steps = [p.from_step for p in self.phase]
        if steps != sorted(set(steps)):
            raise ValueError("phases must be listed by rising from_step")
        return self

    def to_suite(self, data_digests: dict[str, str]) -> Suite:
        """Return the suite; `data_digests` maps a benchmark's name to the hash of its local data."""
        generation = self.suite.model_dump(exclude={"name", "concurrency", "request_timeout_s"})
        return Suite(
            name=self.suite.name,
            benchmarks=tuple(
                b.to_benchmark(data_digest=data_digests.get(b.resolved_name(), "")) for b in self.benchmark
            ),
            generation=Generation(**generation),
            concurrency=self.suite.concurrency,
            request_timeout_s=self.suite.request_timeout_s,
        )

    def to_policy(self) -> Policy:
        """Return the record for the judge."""
        phases = tuple(Phase(name=p.name, from_step=p.from_step) for p in self.phase)
        chance = {b.resolved_name(): c for b in self.benchmark if (c := b.resolved_chance()) is not None}
        return self.policy.to_policy(phases, chance)


def load_config(path: Path) -> Config:
    """Read and check a configuration file.

    Raises:
        ConfigError: the file is missing, is no TOML, or a setting is wrong; all wrong settings are named at once.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no {path}", hint="write one with `tracker init FOLDER`, or name another with --config"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="check its permissions and encoding") from error
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> Config:
    """Check the text of a configuration file; `path` anchors relative paths and is named in errors.

    Raises:
        ConfigError: as `load_config`.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="mend that line") from error
    try:
        config = Config.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(_sentence(detail) for detail in error.errors())
        raise ConfigError(f"{path}: {problems}", hint="every setting is listed in docs/settings.md") from error
    return _anchored(config, path.absolute().parent)


# --- private


def _anchored(config: Config, folder: Path) -> Config:
    run = config.run.model_copy(
        update={"output_dir": folder / config.run.output_dir, "state_dir": folder / config.run.state_dir}
    )
    benchmarks = tuple(
        b if b.data is None else b.model_copy(update={"data": folder / b.data}) for b in config.benchmark
    )
    probe = config.probe
    if probe.reference not in {"", FIRST}:
        probe = probe.model_copy(update={"reference": str(folder / probe.reference)})
    return config.model_copy(update={"run": run, "benchmark": benchmarks, "probe": probe})


def _sentence(detail: ErrorDetails) -> str:
    where = ".".join(_names(detail["loc"])) or "the file"
    if detail["type"] == "extra_forbidden":
        return f"unknown setting {where}{_nearest(detail['loc'])}"
    if detail["type"] == "missing":
        return f"{where} is missing"
    return f"{where}: {detail['msg'].removeprefix('Value error, ')}"


def _names(location: tuple[int | str, ...]) -> Iterator[str]:
    """Count entries of a list from 1, as people do."""
    for part in location:
        yield f"[{part + 1}]" if isinstance(part, int) else part


def _nearest(location: tuple[int | str, ...]) -> str:
    model: type[BaseModel] = Config
    for part in location[:-1]:
        if isinstance(part, str):
            model = _section_of(model.model_fields[part].annotation)
    close = difflib.get_close_matches(str(location[-1]), list(model.model_fields), n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else f" (known: {', '.join(model.model_fields)})"


def _section_of(annotation: Any) -> type[BaseModel]:  # noqa: ANN401 - a type expression has no common type
    candidates = (annotation, *get_args(annotation))
    return next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
