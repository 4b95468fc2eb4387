"""Unpaired comparison of two results of one benchmark, of which at least one has no samples. Never a verdict. Pure.

Without pairs the difficulty of the questions does not cancel, and the standard error of one checkpoint does not include
training jitter. The interval is therefore valid for these two sets of answers only.
"""

import math

from eval_jobs.types import EvalResult
from tracker.domain.records.display import score_text, signed_text
from tracker.domain.scores.summary import summarise

HINT = (
    "import files with samples (lm_eval --log_samples; predictions/ and reviews/ of EvalScope), "
    "or evaluate both checkpoints with `tracker evaluate CHECKPOINT`"
)

_NORMAL_95 = 1.959964


def lacks_samples(before: EvalResult, after: EvalResult) -> bool:
    """Return whether pairing is impossible: at least one result is known only by its mean."""
    return before.aggregate is not None or after.aggregate is not None


def unpaired_text(before: EvalResult, after: EvalResult, *, steps: tuple[int, int], alike: bool) -> str:
    """Return both means and, if they were measured alike, the interval of their difference."""
    sides = ", ".join(_side(result, step) for result, step in zip((before, after), steps, strict=True))
    return f"{sides}: imported without samples, so they cannot be paired{_change(before, after) if alike else ''}"


def _side(result: EvalResult, step: int) -> str:
    known = summarise(result)
    error = "" if known.stderr is None else f" (standard error {score_text(known.stderr)})"
    return f"{score_text(known.mean)}{error} at step {step}"


def _change(before: EvalResult, after: EvalResult) -> str:
    old, new = summarise(before), summarise(after)
    if old.mean is None or new.mean is None or old.stderr is None or new.stderr is None:
        return ""
    delta, margin = new.mean - old.mean, _NORMAL_95 * math.hypot(old.stderr, new.stderr)
    return f"; unpaired difference: 95 % CI {signed_text(delta - margin)} to {signed_text(delta + margin)}"
