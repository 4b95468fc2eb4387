"""tracker.toml -> a validated, frozen configuration -> the records that the use cases work with.

Paths in the file are relative to the file. Every setting is described once, here or in the record
that holds it (`Section`); docs/reference/settings.md is made from that.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from eval_jobs.types import EngineKind, Generation, Suite
from tracker.config.alerting import AlertsSection
from tracker.config.finding import RunSection, S3Section, WatchSection
from tracker.config.gating import GateSection, load_gate_policy
from tracker.config.health import HealthSection
from tracker.config.judging import PhaseSection, PolicySection, TrackingSection
from tracker.config.measuring import FIRST, BenchmarkSection, ProbeSection, ServeSection, SuiteSection
from tracker.config.reading import checked, read_text
from tracker.config.section import Section, named_twice, record_of
from tracker.config.storing import KeepSection, StoreSection
from tracker.config.sweeping import ScheduleSection
from tracker.domain.records.policy import Phase, Policy

__all__ = ["DEFAULT_NAME", "FIRST", "Config", "load_config", "load_gate_policy", "parse_config"]

DEFAULT_NAME = "tracker.toml"


class Config(Section):
    """The whole file."""

    run: RunSection
    watch: WatchSection = WatchSection()
    s3: S3Section = S3Section()
    serve: ServeSection = ServeSection()
    suite: SuiteSection = SuiteSection()
    benchmark: tuple[BenchmarkSection, ...] = Field(min_length=1)
    probe: ProbeSection = ProbeSection()
    policy: PolicySection = PolicySection()
    gate: GateSection = GateSection()
    keep: KeepSection = KeepSection()
    phase: tuple[PhaseSection, ...] = ()
    schedule: tuple[ScheduleSection, ...] = ()
    tracking: TrackingSection = TrackingSection()
    alerts: AlertsSection = AlertsSection()
    health: HealthSection = HealthSection()
    store: StoreSection = StoreSection()

    @model_validator(mode="after")
    def _benchmark_names_are_unique(self) -> Config:
        if twice := named_twice(b.resolved_name() for b in self.benchmark):
            raise ValueError(f"duplicate benchmark name {twice!r}: set a different `name`")
        return self

    @model_validator(mode="after")
    def _a_remote_reference_is_asked_for_by_step(self) -> Config:
        serve = self.serve
        if self.probe.reference and serve.engine is EngineKind.REMOTE and "{step}" not in serve.model:
            raise ValueError(
                "probe.reference requires {step} in serve.model; otherwise a model is compared with itself"
            )
        return self

    @model_validator(mode="after")
    def _phases_are_in_order(self) -> Config:
        steps = [p.from_step for p in self.phase]
        if steps != sorted(set(steps)):
            raise ValueError("phases must be listed in ascending order of from_step")
        return self

    @model_validator(mode="after")
    def _the_gate_asks_for_what_is_measured(self) -> Config:
        benchmarks = [b.resolved_name() for b in self.benchmark]
        unknown = self.gate.never_measured(benchmarks, [load.name for load in self.probe.to_loads()])
        if unknown:
            raise ValueError("; ".join(unknown))
        return self

    @model_validator(mode="after")
    def _sweeps_can_be_told_apart_and_ask_for_what_is_there(self) -> Config:
        if twice := named_twice(s.name for s in self.schedule):
            raise ValueError(f"duplicate sweep name {twice!r}: set a different `name`")
        known = tuple(b.resolved_name() for b in self.benchmark)
        for schedule in self.schedule:
            for name in schedule.benchmarks or ():
                if name not in known:
                    raise ValueError(f"sweep {schedule.name}: no [[benchmark]] named {name!r}")
        return self

    @property
    def database_url(self) -> str:
        """URL of the database of queue, history and outbox, without its password."""
        return self.store.database or f"sqlite:///{self.run.state_dir / 'tracker.db'}"

    def to_suite(self, data_digests: dict[str, str]) -> Suite:
        """Return the suite; `data_digests` maps a benchmark's name to the hash of its local data."""
        benchmarks = (b.to_benchmark(data_digest=data_digests.get(b.resolved_name(), "")) for b in self.benchmark)
        generation = record_of(Generation, self.suite)
        return record_of(Suite, self.suite, benchmarks=tuple(benchmarks), generation=generation)

    def to_policy(self) -> Policy:
        """Return the record for the judge."""
        phases = tuple(record_of(Phase, p) for p in self.phase)
        chance = {b.resolved_name(): c for b in self.benchmark if (c := b.resolved_chance()) is not None}
        return self.policy.to_policy(phases, chance)


_NO_FILE = "create one with `tracker init FOLDER`, or pass --config FILE"


def load_config(path: Path, *, hint: str = _NO_FILE) -> Config:
    """Read and check a configuration file; `hint`: what to do when there is none.

    Raises:
        ConfigError: the file is missing, is no TOML, or a setting is wrong; all wrong settings are named at once.
    """
    return parse_config(read_text(path, hint=hint), path)


def parse_config(text: str, path: Path) -> Config:
    """Check the text of a configuration file; `path` anchors relative paths and is named in errors.

    Raises:
        ConfigError: as `load_config`.
    """
    config = checked(Config, text, path)
    gate = config.gate.inheriting(config.policy)
    return config.model_copy(update={"gate": gate})
