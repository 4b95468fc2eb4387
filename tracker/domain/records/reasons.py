"""Why a verdict has its word: a code, with the numbers and names that the verdict does not hold itself. Frozen values.

The function that decides makes one; `reason_text` words it where it is shown.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Failed:
    """It was not measured."""

    code: Literal["failed"] = "failed"
    message: str = ""
    """What the error says."""
    error: str = ""
    """Code of the error, as in `eval_jobs.errors`; empty: there was none."""


@dataclass(frozen=True, kw_only=True)
class FewScores:
    """Too few of its samples have a score."""

    code: Literal["few-scores"] = "few-scores"
    with_score: int
    planned: int
    errors: int
    unscored: int
    needed: float
    """Share of the samples."""
    detail: str
    """Why the first of them has none; empty: not known."""


@dataclass(frozen=True, kw_only=True)
class NothingEarlier:
    """It is the first usable result of the run."""

    code: Literal["nothing-earlier"] = "nothing-earlier"


@dataclass(frozen=True, kw_only=True)
class TooEarly:
    """One earlier checkpoint is too little."""

    code: Literal["too-early"] = "too-early"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that two evaluations do not have in common."""

    setting: str
    now: str = ""
    """Empty, like `before`: the setting is the same, and another version of the program took it otherwise."""
    before: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuredOtherwise:
    """The newest earlier result was measured in another way."""

    code: Literal["measured-otherwise"] = "measured-otherwise"
    step: int
    """Of the earlier result."""
    differences: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True)
class FewInCommon:
    """A small part of the samples has a score on both sides."""

    code: Literal["few-in-common"] = "few-in-common"
    samples: int
    share: float
    needed: float


@dataclass(frozen=True, kw_only=True)
class FewSamples:
    """The samples that have a score on both sides are too few to show how much they scatter."""

    code: Literal["few-samples"] = "few-samples"
    samples: int
    needed: int


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The verdict's first comparison says it."""

    code: Literal["compared"] = "compared"
    before: float
    """Mean of the baseline, as the benchmark reports it, over the samples that all compared checkpoints asked."""
    now: float
    """The same of the candidate's side."""
    margin: float
    """Within which it counts as equivalent."""
    in_a_row: int = 0
    """Checkpoints that must show a forgetting or a recovery; 0: neither was found."""


@dataclass(frozen=True, kw_only=True)
class ComparedMeans:
    """Means without samples were compared."""

    code: Literal["compared-means"] = "compared-means"
    before: float
    now: float
    pooled: int
    """Newest checkpoints that `now` is the mean of."""
    baseline_steps: tuple[int, ...]
    is_peak: bool
    """The baseline is the best earlier block; else the checkpoints just before."""
    ci_low: float
    """95 % interval of the change; up is better."""
    ci_high: float
    p: float
    """The smaller one of "worse" and "better"."""
    never_above_chance: bool
    """It is a loss, of what was never better than guessing."""


@dataclass(frozen=True, kw_only=True)
class NotOfAScore:
    """The numbers that were imported cannot be judged on the scale of a score."""

    code: Literal["not-of-a-score"] = "not-of-a-score"
    problem: str
    """What the error says."""


Reason = (
    Failed
    | FewScores
    | NothingEarlier
    | TooEarly
    | MeasuredOtherwise
    | FewInCommon
    | FewSamples
    | Compared
    | ComparedMeans
    | NotOfAScore
)


@dataclass(frozen=True, kw_only=True)
class FewRequests:
    """Too few requests were timed, or almost all of them in one half of the load."""

    code: Literal["few-requests"] = "few-requests"
    needed: int


@dataclass(frozen=True, kw_only=True)
class NoScatter:
    """All draws from the requests agree, as if a clock stood still."""

    code: Literal["no-scatter"] = "no-scatter"


@dataclass(frozen=True, kw_only=True)
class ShortHistory:
    """Too few earlier checkpoints were timed alike."""

    code: Literal["short-history"] = "short-history"
    needed: int


@dataclass(frozen=True, kw_only=True)
class AgainstReference:
    """The latency verdict's own numbers say it, against a reference."""

    code: Literal["against-reference"] = "against-reference"
    learning: int
    """Checkpoints after which the noise between starts is known."""


@dataclass(frozen=True, kw_only=True)
class AgainstHistory:
    """The latency verdict's own numbers say it, against earlier checkpoints."""

    code: Literal["against-history"] = "against-history"
    checkpoints: int


LatencyReason = Failed | FewRequests | NoScatter | ShortHistory | AgainstReference | AgainstHistory
