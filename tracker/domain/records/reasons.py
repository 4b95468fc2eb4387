"""Why a verdict has its word: a code, with the numbers and names that the verdict does not contain. Frozen values.

The function that decides creates the reason; `reason_text` formats it for display.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The measurement is missing or failed."""

    code: Literal["failed"] = "failed"
    message: str = ""
    """Message of the error."""
    error: str = ""
    """Code of the error, as in `eval_jobs.errors`; empty if there was none."""


@dataclass(frozen=True, kw_only=True)
class FewScores:
    """Too few samples have a score."""

    code: Literal["few-scores"] = "few-scores"
    with_score: int
    planned: int
    errors: int
    unscored: int
    needed: float
    """Required share of samples with a score."""
    detail: str
    """Why the first sample without a score has none; empty if unknown."""


@dataclass(frozen=True, kw_only=True)
class NothingEarlier:
    """The result is the first usable one of the run, or since its level was accepted."""

    code: Literal["nothing-earlier"] = "nothing-earlier"
    accepted_step: int | None = None
    """Step of the accepted level; None: none was accepted."""


@dataclass(frozen=True, kw_only=True)
class TooEarly:
    """One earlier checkpoint was not enough for a verdict: in reports with `rules_version` 1."""

    code: Literal["too-early"] = "too-early"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that differs between two evaluations."""

    setting: str
    now: str = ""
    """Empty, like `before`, if the setting is equal but another version of the program interpreted it differently."""
    before: str = ""


@dataclass(frozen=True, kw_only=True)
class MeasuredOtherwise:
    """The newest earlier result was measured differently."""

    code: Literal["measured-otherwise"] = "measured-otherwise"
    step: int
    """Step of the earlier result."""
    differences: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True)
class FewInCommon:
    """Too small a share of the samples has a score on both sides."""

    code: Literal["few-in-common"] = "few-in-common"
    samples: int
    share: float
    needed: float


@dataclass(frozen=True, kw_only=True)
class FewSamples:
    """Too few samples have a score on both sides to estimate their variance."""

    code: Literal["few-samples"] = "few-samples"
    samples: int
    needed: int


@dataclass(frozen=True, kw_only=True)
class Disruption:
    """A moment of the training after which scores are expected to be lower for a while."""

    step: int
    what: str
    """Such as `restart of the learning rate`."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The verdict is based on its first comparison."""

    code: Literal["compared"] = "compared"
    before: float
    """Mean of the baseline, as the benchmark reports it, over the samples evaluated at all compared checkpoints."""
    now: float
    """The same mean for the candidate's side."""
    margin: float
    """Margin within which the change counts as equivalent, in score units."""
    in_a_row: int = 0
    """Consecutive checkpoints required to show forgetting or recovery; 0 if neither was found."""
    expected_after: Disruption | None = None
    """What explains a loss as an expected dip; None: nothing."""


@dataclass(frozen=True, kw_only=True)
class Fall:
    """The change of one benchmark."""

    benchmark: str
    change: float
    """In score units; up is better."""


@dataclass(frozen=True, kw_only=True)
class Together:
    """All benchmarks of the suite were tested together."""

    code: Literal["together"] = "together"
    falls: tuple[Fall, ...]
    """Benchmarks that are lower by themselves, the largest fall first."""
    compared: int
    """Number of benchmarks tested."""
    steps: tuple[int, ...]
    """Steps of the checkpoints that are lower, or were."""
    p: float | None = None
    """One-sided p of "worse" of the test that decided; None if an earlier checkpoint's did."""
    expected_after: Disruption | None = None
    back: tuple[str, ...] = ()
    """Benchmarks that had fallen, and are better by their own tests."""


@dataclass(frozen=True, kw_only=True)
class ComparedMeans:
    """Means without samples were compared."""

    code: Literal["compared-means"] = "compared-means"
    before: float
    now: float
    pooled: int
    """Number of newest checkpoints that `now` is the mean of."""
    baseline_steps: tuple[int, ...]
    is_peak: bool
    """Whether the baseline is the best earlier block; else it is the checkpoints just before."""
    ci_low: float
    """95 % interval of the change; up is better."""
    ci_high: float
    p: float
    """The smaller of the p-values of "worse" and "better"."""
    never_above_chance: bool
    """Whether it is a loss of a score that was never better than guessing."""


@dataclass(frozen=True, kw_only=True)
class NeverAboveChance:
    """No checkpoint was better than guessing yet, or since a level was accepted."""

    code: Literal["never-above-chance"] = "never-above-chance"
    chance: float
    """Score of guessing, as the benchmark reports it."""
    accepted_step: int | None = None
    """As in `NothingEarlier`."""


@dataclass(frozen=True, kw_only=True)
class NotOfAScore:
    """The imported numbers are not on the scale of a score, so no verdict is possible."""

    code: Literal["not-of-a-score"] = "not-of-a-score"
    problem: str
    """Message of the error."""


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
    | Together
    | NeverAboveChance
    | NotOfAScore
)


@dataclass(frozen=True, kw_only=True)
class FewRequests:
    """Too few requests were timed, or almost all of them in one half of the load."""

    code: Literal["few-requests"] = "few-requests"
    needed: int


@dataclass(frozen=True, kw_only=True)
class NoScatter:
    """All bootstrap draws from the requests agree, as if the clock had not advanced."""

    code: Literal["no-scatter"] = "no-scatter"


@dataclass(frozen=True, kw_only=True)
class ShortHistory:
    """Too few earlier checkpoints were timed under the same conditions."""

    code: Literal["short-history"] = "short-history"
    needed: int


@dataclass(frozen=True, kw_only=True)
class AgainstReference:
    """The verdict is based on its own numbers, compared with a reference."""

    code: Literal["against-reference"] = "against-reference"
    learning: int
    """Number of checkpoints after which the noise between engine starts is known."""


@dataclass(frozen=True, kw_only=True)
class AgainstHistory:
    """The verdict is based on its own numbers, compared with earlier checkpoints."""

    code: Literal["against-history"] = "against-history"
    checkpoints: int


LatencyReason = Failed | FewRequests | NoScatter | ShortHistory | AgainstReference | AgainstHistory
