"""Tables of tracker.toml, or of a file of their own: what a gate demands of a candidate.

    policy = load_gate_policy(Path("gate.toml"))      # [gate] tables alone
    policy = load_config(Path("tracker.toml")).gate.to_policy()

In tracker.toml the gate takes `min_effect` and `min_coverage` from `[policy]` where it has none of its own: which loss
matters and how many scores are enough is a property of the benchmarks, and who has said it once expects `tracker gate`
and the verdicts to agree. Its `alpha` is its own: that of `[policy]` is spent over a whole run, this one on one answer.
A `min_effect` that is set nowhere is the smallest at which an equal candidate passes, not the default of the verdicts:
a run collects evidence over its checkpoints, and a gate has one pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from eval_jobs.errors import ConfigError
from tracker.config.judging import PolicySection
from tracker.config.reading import checked, read_text
from tracker.config.section import Section, named_twice, record_of, toml_key
from tracker.domain.gate.rules import POWER, QUANTILES, SMALLEST, BenchmarkRule, Clusters, GatePolicy, LatencyLimit
from tracker.domain.records.types import LatencyMetric

SMALLEST_EFFECT = SMALLEST
"""The least that a gate can be asked for: a loss of nothing is never excluded, and scores are shown with 3 decimals."""


class GateBenchmarkSection(Section):
    """Requirements for one benchmark. It must have been measured. Quote names beyond `A-Za-z0-9_-`."""

    required: bool = True
    """false: the check is advisory."""
    min_effect: float | None = Field(default=None, ge=SMALLEST_EFFECT, lt=1)
    """Smallest loss that counts, in score units. Default: `gate.min_effect`."""
    min_coverage: float | None = Field(default=None, gt=0, le=1)
    """Minimum share of samples with a score on both sides. Default: `gate.min_coverage`."""
    floor: float | None = Field(default=None, allow_inf_nan=False)
    """Absolute score that the candidate must reach (must not exceed, where lower is better), regardless of the
    baseline."""
    clusters: Clusters = Clusters.FOUND
    """Dependent samples: `found` (same passage, document or `cluster`), `subset` (same subset) or `none`."""

    def to_rule(self, otherwise: BenchmarkRule) -> BenchmarkRule:
        """Return the record; what is not set here is as in `otherwise`."""
        return replace(otherwise, **self.model_dump(exclude_none=True))


class GateLatencySection(Section):
    """Limit for one latency quantile of the candidate."""

    metric: LatencyMetric
    """`ttft` (time to first token), `tpot` (time per output token) or `e2e` (end to end)."""
    quantile: Literal["p50", "p90", "p95", "p99"]
    """`p50`, `p90`, `p95` or `p99`."""
    max_ms: float = Field(gt=0, allow_inf_nan=False)
    """Limit, in milliseconds."""
    load: str = Field(default="default", min_length=1)
    """Name of the load."""
    required: bool = True
    """false: the check is advisory."""

    def to_limit(self) -> LatencyLimit:
        """Return the record for the gate."""
        return record_of(LatencyLimit, self, quantile=QUANTILES[self.quantile])


class GateSection(Section):
    """Requirements of `tracker gate`. These tables may also be in a separate file for `--policy`."""

    alpha: float = Field(default=GatePolicy.alpha, gt=0, lt=0.5)
    """Family-wise error rate over the required benchmarks: probability of REGRESSION if no benchmark has a loss."""
    min_effect: float | None = Field(
        default=None,
        ge=SMALLEST_EFFECT,
        lt=1,
        description="Smallest loss that counts, in score units. Default: `policy.min_effect` if set, else the smallest "
        f"at which an equal candidate passes in {100 * POWER:g} % of cases.",
    )
    min_coverage: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Minimum share of samples with a score on both sides. Default: "
        f"`policy.min_coverage`, or {BenchmarkRule.min_coverage:g} in a policy file.",
    )
    min_loss: float | None = Field(default=None, ge=SMALLEST_EFFECT, lt=1)
    """Smallest significant loss that is a regression. Default: `min_effect`."""
    others_required: bool = True
    """Require benchmarks without a [gate.benchmark.NAME] table. false: they are advisory."""
    benchmark: dict[str, GateBenchmarkSection] = Field(default_factory=dict)
    latency: tuple[GateLatencySection, ...] = ()

    @field_validator("benchmark", mode="before")
    @classmethod
    def _is_one_table_for_each(cls, value: Any) -> Any:  # noqa: ANN401 - whatever a file may hold
        if isinstance(value, list):
            raise ValueError(  # noqa: TRY004 - pydantic collects this kind only
                "use one table per benchmark, such as [gate.benchmark.gsm8k]"
            )
        for name, rule in value.items() if isinstance(value, dict) else ():
            full = _dotted(name, rule)
            if full != name:
                raise ValueError(f"quote a name that contains dots: [gate.benchmark.{toml_key(full)}]")
        return value

    @model_validator(mode="after")
    def _no_time_has_two_limits(self) -> GateSection:
        times = [f"{one.quantile} of {one.metric} under load {one.load}" for one in self.latency]
        if twice := named_twice(times):
            raise ValueError(f"{twice} has two limits: remove one")
        return self

    @model_validator(mode="after")
    def _something_is_required(self) -> GateSection:
        rules = [rule.required for rule in self.benchmark.values()]
        if not (self.others_required or any(rules) or any(limit.required for limit in self.latency)):
            raise ValueError("no check is required: set required = true for at least one")
        return self

    def never_measured(self, benchmarks: Sequence[str], loads: Sequence[str]) -> list[str]:
        """Return a sentence for each table that asks for a benchmark or a load that is not among these."""
        known = ", ".join(benchmarks)
        timed = ", ".join(loads) or "none, because probe.enabled is false"
        problems = []
        for name in self.benchmark:
            if name not in benchmarks:
                problems.append(f"gate.benchmark.{toml_key(name)}: unknown benchmark (known: {known})")
        for number, one in enumerate(self.latency, start=1):
            if one.load not in loads:
                problems.append(f"gate.latency.[{number}].load: unknown load {one.load!r} (known: {timed})")
        return problems

    def inheriting(self, policy: PolicySection) -> GateSection:
        """Return it with what the verdicts go by where it says nothing itself."""
        given: dict[str, float] = {"min_coverage": policy.min_coverage}
        if "min_effect" in policy.model_fields_set:
            given["min_effect"] = policy.min_effect
        return self.model_copy(update={key: value for key, value in given.items() if getattr(self, key) is None})

    def to_policy(self) -> GatePolicy:
        """Return the record for the gate.

        Raises:
            ConfigError: `policy.min_effect` is too small for a gate, and there is no `gate.min_effect` in its place.
        """
        if self.min_effect is not None and self.min_effect < SMALLEST_EFFECT:
            raise ConfigError(
                f"policy.min_effect = {self.min_effect:g} is too small for a gate",
                hint=f"set gate.min_effect to the smallest loss that counts, at least {SMALLEST_EFFECT:g}",
            )
        given = self.model_dump(include={"min_effect", "min_coverage", "min_loss"}, exclude_none=True)
        otherwise = BenchmarkRule(required=self.others_required, **given)
        return GatePolicy(
            alpha=self.alpha,
            otherwise=otherwise,
            benchmarks={name: rule.to_rule(otherwise) for name, rule in self.benchmark.items()},
            latency=tuple(one.to_limit() for one in self.latency),
        )


class GateFile(Section):
    """A file that holds the tables of a gate and nothing else."""

    gate: GateSection


def load_gate_policy(path: Path) -> GatePolicy:
    """Read and check a file of `[gate]` tables alone; its names are taken as they are, whatever the project measures.

    Raises:
        ConfigError: the file is missing, is no TOML, or a setting is wrong; all wrong settings are named at once.
    """
    hint = "pass an existing policy file, or none to use [gate] of tracker.toml"
    return checked(GateFile, read_text(path, hint=hint), path).gate.to_policy()


def _dotted(name: str, rule: object) -> str:
    """Return the name that was meant where TOML read `[gate.benchmark.a.b]` as a table in a table."""
    parts = [name]
    while isinstance(rule, dict):
        inner = next((key for key, value in rule.items() if isinstance(value, dict)), None)
        if inner is None:
            break
        parts.append(inner)
        rule = rule[inner]
    return ".".join(parts)
