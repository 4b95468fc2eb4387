"""The tables of tracker.toml that describe sweeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from eval_jobs.types import Benchmark, EngineKind, ProbeLoad, RequestSettings, ServeSpec, Suite
from tracker.config.measuring import BenchmarkSection
from tracker.config.section import Section, named_twice, record_of, without_key
from tracker.domain.sweeps.cron import check_timetable
from tracker.domain.sweeps.matrix import PROMPT, count_variants
from tracker.domain.sweeps.selectors import FORMS, parse_selector
from tracker.domain.sweeps.types import Missed, OtherModel, Sweep, Timetable

MAX_VALUES = 100
"""Of one axis."""

Temperature = Annotated[float, Field(ge=0, le=100)]
Share = Annotated[float, Field(gt=0, le=1)]
Length = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0, le=100_000)]


class MatrixSection(Section):
    """Settings that the sweep varies: every combination is evaluated. Missing settings come from the suite."""

    temperature: tuple[Temperature, ...] = ()
    """Sampling temperatures, such as `[0.0, 0.7, 1.0]`."""
    top_p: tuple[Share, ...] = ()
    """Nucleus sampling probabilities."""
    top_k: tuple[int, ...] = ()
    """Numbers of most likely tokens to sample from; -1: all."""
    seed: tuple[int, ...] = ()
    """Random seeds, to measure sampling noise at a temperature above 0."""
    max_tokens: tuple[Length, ...] = ()
    """Maximum answer lengths, in tokens. They override the benchmarks' own."""
    few_shot: tuple[Count, ...] = ()
    """Numbers of few-shot examples in the prompt."""
    prompt: tuple[str, ...] = ()
    """Names from [schedule.prompts]."""

    @model_validator(mode="after")
    def _values_differ(self) -> MatrixSection:
        for axis, values in self.axes().items():
            if len(set(values)) < len(values):
                raise ValueError(f"{axis} contains a value twice")
            if len(values) > MAX_VALUES:
                raise ValueError(f"{axis} has {len(values)} values (maximum {MAX_VALUES})")
        return self

    def axes(self) -> dict[str, tuple[float | int | str, ...]]:
        """Return what is varied."""
        return {axis: values for axis in type(self).model_fields if (values := getattr(self, axis))}


class LoadSection(Section, RequestSettings):
    """Loads to apply to every checkpoint and endpoint, for the latency-throughput curve."""

    leading = ("concurrency", "request_rate")
    concurrency: tuple[Length, ...] = ()
    """Concurrent requests; one load per number, such as `[1, 2, 4, 8, 16]`."""
    request_rate: tuple[Rate, ...] = ()
    """Requests per second with Poisson arrivals; one load per number."""
    requests: Length = 64
    """Number of timed requests per load."""

    @model_validator(mode="after")
    def _loads_differ(self) -> LoadSection:
        for name, values in (("concurrency", self.concurrency), ("request_rate", self.request_rate)):
            if len(set(values)) < len(values):
                raise ValueError(f"{name} contains a load twice")
        return self

    def to_loads(self) -> tuple[ProbeLoad, ...]:
        """Return the loads, the lightest of each kind first."""
        shared = self.model_dump(exclude={"concurrency", "request_rate"})
        closed = (ProbeLoad(name=f"c{n}", concurrency=n, **shared) for n in sorted(self.concurrency))
        rated = (
            ProbeLoad(name=f"r{rate:g}", concurrency=self.requests, request_rate=rate, **shared)
            for rate in sorted(self.request_rate)
        )
        return (*closed, *rated)


class EndpointSection(Section):
    """An external model server to evaluate alongside the checkpoints."""

    name: str = Field(min_length=1, max_length=100)
    """Name in results."""
    base_url: str = Field(min_length=1)
    """Base URL, such as `http://host:8000/v1`."""
    model: str = ""
    """Model name. Empty: the server's only model."""
    api_key_env: str = ""
    """Environment variable that contains the API key, on every worker."""

    @field_validator("base_url")
    @classmethod
    def _address_holds_no_key(cls, value: str) -> str:
        return without_key(value, instead="set api_key_env to the name of an environment variable")

    def to_other_model(self) -> OtherModel:
        """Return the record for the matrix."""
        return OtherModel(name=self.name, serve=record_of(ServeSpec, self, engine=EngineKind.REMOTE))


class ScheduleSection(Section):
    """A benchmark sweep: checkpoints and endpoints, variants, and the schedule."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$")
    """Name in commands and results: letters, digits, spaces and . _ -"""
    cron: str = ""
    """Cron expression, such as `0 2 * * *` for 02:00 every day. Empty: only on demand with `tracker sweep run`."""
    time_zone: str = "UTC"
    """Time zone of `cron`, such as `Europe/Berlin`."""
    missed: Missed = Missed.ONCE
    """What to do about scheduled times missed while `tracker watch` was not running. `once`: one sweep run at the
    next start. `skip`: nothing."""
    checkpoints: tuple[str, ...] = Field(default=("latest",), description=f"Pinned checkpoints to evaluate: {FORMS}.")
    benchmarks: tuple[str, ...] | None = None
    """Names of [[benchmark]] tables. Default: all, or only the [[schedule.benchmark]] tables if there are any.
    `[]`: measure latency only."""
    again: bool = False
    """Evaluate checkpoints again in every sweep run. Endpoints are always evaluated again."""
    max_evaluations: Length = 200
    """Maximum number of evaluations (targets x variants) per sweep run. A larger sweep run is refused."""
    matrix: MatrixSection = MatrixSection()
    prompts: dict[str, str] = Field(default={})
    """Prompt templates by name. An empty string selects the benchmark's own prompt."""
    load: LoadSection = LoadSection()
    endpoint: tuple[EndpointSection, ...] = ()
    benchmark: tuple[BenchmarkSection, ...] = ()

    @model_validator(mode="after")
    def _timetable_can_be_followed(self) -> ScheduleSection:
        if self.cron:
            check_timetable(self.timetable())
        return self

    @field_validator("checkpoints")
    @classmethod
    def _selectors_can_be_read(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_selector(text)
        return value

    @model_validator(mode="after")
    def _prompts_are_there(self) -> ScheduleSection:
        unknown = [name for name in self.matrix.prompt if name not in self.prompts]
        if unknown:
            raise ValueError(f"matrix.{PROMPT}: {unknown[0]!r} not found in [schedule.prompts]")
        return self

    @model_validator(mode="after")
    def _asks_somebody_something(self) -> ScheduleSection:
        if not self.checkpoints and not self.endpoint:
            raise ValueError(f"sweep {self.name} has no target: set checkpoints, or add a [[schedule.endpoint]]")
        if named_twice(one.name for one in self.endpoint):
            raise ValueError(f"sweep {self.name} has two endpoints with the same name: rename one")
        return self

    @model_validator(mode="after")
    def _without_benchmarks_it_is_about_latency(self) -> ScheduleSection:
        if self.asks_no_benchmark() and not self.load.to_loads():
            raise ValueError(f"sweep {self.name} measures nothing: set benchmarks, or loads in [schedule.load]")
        if self.asks_no_benchmark() and self.matrix.axes():
            raise ValueError(f"sweep {self.name} has a matrix but no benchmarks: set benchmarks, or remove the matrix")
        return self

    @model_validator(mode="after")
    def _is_not_too_large(self) -> ScheduleSection:
        cells = count_variants(self.matrix.axes())
        if cells > self.max_evaluations:
            raise ValueError(
                f"the matrix of sweep {self.name} has {cells:,} variants (max_evaluations = "
                f"{self.max_evaluations:,}): use fewer values, or raise the limit"
            )
        return self

    def asks_no_benchmark(self) -> bool:
        """Say whether only latency is measured."""
        return self.benchmarks == () and not self.benchmark

    def timetable(self) -> Timetable:
        """Return the record of when it is due."""
        return record_of(Timetable, self)

    def to_sweep(self, suite: Suite, serve: ServeSpec, own: tuple[Benchmark, ...]) -> Sweep:
        """Return the record for the use case.

        `own`: the records of `[[schedule.benchmark]]`.
        """
        benchmarks = suite.benchmarks
        if self.benchmarks is not None or own:
            benchmarks = tuple(b for b in benchmarks if b.name in (self.benchmarks or ()))
        return record_of(
            Sweep,
            self,
            timetable=self.timetable() if self.cron else None,
            checkpoints=tuple(parse_selector(text) for text in self.checkpoints),
            endpoints=tuple(one.to_other_model() for one in self.endpoint),
            suite=replace(suite, name=self.name, benchmarks=(*benchmarks, *own)),
            serve=serve,
            axes=self.matrix.axes(),
            loads=self.load.to_loads(),
        )
