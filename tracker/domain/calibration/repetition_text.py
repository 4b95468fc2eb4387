"""Run-to-run noise of an evaluation, in words. Pure."""

import math
from collections.abc import Iterable, Sequence

from tracker.domain.records.calibration import Fitness, Repetition
from tracker.domain.records.display import names_text, score_text

NOT_CALIBRATED = "not calibrated"

_TWO_SIDED_95 = 1.96
_SHOWN = 4


def rate_text(share: float) -> str:
    """Return a share in percent with the significant digits: `0.4 %`, `12 %`."""
    percent = 100 * share
    if percent < 9.95:
        return f"{percent:.1f} %"
    return f"{percent:.0f} %"


def flips_text(found: Repetition) -> str:
    """Return how many samples flip: `0.4 % of the samples`, or the upper limit if none did."""
    if found.flips == 0:
        return f"none of {found.samples} samples (95 % CI up to {rate_text(found.flip_rate_high)})"
    return f"{rate_text(found.flips / found.samples)} of the samples"


def change_text(noise: float) -> str:
    """Return the difference that 95 % of repeated evaluations of a model stay within, from the noise of one."""
    return f"±{score_text(_TWO_SIDED_95 * math.sqrt(2) * noise)}"


def effect_text(found: Repetition) -> str:
    """Return the effect of repetition, and whether it is stale: `flips 0.4 % of the samples, score ±0.002`."""
    change = "" if found.noise == 0 else f", score {change_text(found.noise)}"
    stale = f" (stale: {found.stale})" if found.stale else ""
    return f"flips {flips_text(found)}{change}{stale}"


def repetition_text(found: Repetition) -> str:
    """Return the same as a full clause."""
    return f"repeating the evaluation {effect_text(found)}"


def short_text(found: Repetition) -> str:
    """Return the same in a few words, for display after a verdict."""
    if found.stale:
        return "calibration is stale"
    if found.noise == 0:
        return "no flips between repeated evaluations"
    return f"run-to-run noise {change_text(found.noise)}"


def repetitions_text(found: Sequence[Repetition]) -> str:
    """Return the effect of repetition on several benchmarks in one line; stale ones are only named."""
    fresh = [f"{one.benchmark} {flips_text(one)}" for one in found if not one.stale]
    more = [f"and {len(fresh) - _SHOWN} more"] if len(fresh) > _SHOWN else []
    stale = [one.benchmark for one in found if one.stale]
    parts = (
        f"repeating the evaluation flips: {'; '.join([*fresh[:_SHOWN], *more])}" if fresh else "",
        f"calibration is stale, rerun `tracker calibrate`: {names_text(stale)}" if stale else "",
    )
    return "; ".join(part for part in parts if part)


def unfit_text(found: Repetition) -> str:
    """Return why a benchmark cannot show the smallest effect that counts."""
    size = f"by {score_text(abs(found.shift))} on average" if found.shift else f"by {change_text(found.noise)}"
    limit = f"policy.min_effect {found.min_effect:.2g}"
    return f"{found.benchmark} is too noisy: repeated evaluations differ {size}, more than {limit}"


def is_unfit(found: Repetition | None) -> bool:
    """Return whether a valid (not stale) calibration has shown a benchmark to be unfit."""
    return found is not None and not found.stale and found.fitness is Fitness.UNFIT


def not_calibrated_text(names: Iterable[str]) -> str:
    """Return which benchmarks were never calibrated, and the command for it; empty for none."""
    listed = [*names]
    if not listed:
        return ""
    return f"{NOT_CALIBRATED}: {names_text(listed)} (run `tracker calibrate`)"
