"""Error rates and thresholds of verdicts. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field


@dataclass(frozen=True, kw_only=True)
class LatencyPolicy:
    """Thresholds of latency verdicts."""

    alpha: float = 0.05
    """Probability that noise alone marks any checkpoint of the run as slower, over all metrics and quantiles."""
    planned_checkpoints: int = 100
    """Assumed if it is unknown."""
    min_slowdown_p50: float = 0.03
    """Smallest reported change of a median, as a share: .03 is 3 % slower, or faster by the same factor."""
    min_slowdown_p95: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of the training run, from `from_step` to the next phase."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the phase in reports."""
    from_step: Annotated[int, Field(ge=0)]
    """First step of the phase."""


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """A checkpoint that every other one is also compared with."""

    run_id: str
    step: int


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Error rates and thresholds of verdicts that a user can set."""

    alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
    """Family-wise error rate: probability of any false alarm over a whole healthy run."""
    min_effect: Annotated[float, Field(ge=0, lt=1)] = 0.01
    """Smallest score loss that counts as a regression."""
    subset_min_effect: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Smallest score loss of a single subset that counts as a regression."""
    equivalence_margin: Annotated[float, Field(gt=0, lt=1)] = 0.01
    """Scores shown to differ by less than this margin are reported as equivalent."""
    min_coverage: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Minimum coverage (scored samples / planned samples). Below it the verdict is `missing`."""
    planned_checkpoints: Annotated[int | None, Field(gt=0)] = None
    """Expected number of checkpoints of the run; `alpha` is spent evenly over them. Default: half of `alpha`
    for the first 100 checkpoints, a quarter for the next 200, and so on."""


@dataclass(frozen=True, kw_only=True)
class Policy(PolicySettings):
    """Error rates and thresholds of verdicts."""

    phases: tuple[Phase, ...] = ()
    pinned: Pinned | None = None
    """The base model, or a checkpoint of another run."""
    latency: LatencyPolicy = LatencyPolicy()
    chance: Mapping[str, float] = field(default_factory=dict)
    """Score of guessing, by benchmark, if known: a higher score has been learned."""
