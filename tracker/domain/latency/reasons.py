"""One sentence per latency verdict. Pure."""

from __future__ import annotations

from eval_jobs.types import ProbeFailure
from tracker.domain.latency.rules import LEARNING
from tracker.domain.latency.statistics import BASE
from tracker.domain.records.types import LatencyVerdict, VerdictWord


def reason_for_missing(failure: ProbeFailure | None) -> str:
    """Say why nothing was timed."""
    return "nothing was timed" if failure is None else f"nothing was timed: {failure.message} ({failure.code})"


def reason_for_few(requests: int, needed: int, *, pairs: bool) -> str:
    """Say how many requests there are and how to get enough."""
    if not pairs:
        return f"{requests} requests were timed, {needed} are needed: raise probe.requests to {needed}"
    if requests >= needed:
        return f"of {requests} pairs of requests almost all are of one half: too many of the other failed"
    return (
        f"{requests} pairs of requests were timed, {needed} are needed: raise probe.requests to {needed // 2} or more"
    )


def reason_for_constant(requests: int) -> str:
    """Say that equal times cannot be told from a clock that stands still."""
    return f"all draws from {requests} pairs of requests agree: without scatter nothing can be concluded"


def reason_for_reference(verdict: LatencyVerdict) -> str:
    """Say how the candidate compares with the reference."""
    averaged = f", mean of {verdict.sessions} checkpoints" if verdict.sessions > 1 else ""
    text = f"{_change(verdict)} than the reference, step {verdict.reference_step}{averaged}"
    if verdict.learned_from < LEARNING:
        return f"{text}: the noise between starts is known after {LEARNING} checkpoints, so far {verdict.learned_from}"
    if verdict.word is VerdictWord.SUSPECT:
        return f"{text}: looks slower (p = {verdict.p_slower:.1g}), an alarm needs p < {verdict.alpha_test:.1g}"
    return text + _unseen(verdict)


def reason_for_history(verdict: LatencyVerdict) -> str:
    """Say how the candidate compares with the checkpoints before it."""
    text = f"{_change(verdict)} than the {BASE} checkpoints before it"
    if verdict.word is VerdictWord.SUSPECT:
        return f"{text}; it may have been the machine: set probe.reference to tell"
    return text + _unseen(verdict)


def reason_for_short_history(earlier: int) -> str:
    """Say how long the history is."""
    if not earlier:
        return "the first of this run that was timed on this machine, engine and load"
    return f"{earlier} earlier checkpoints were timed alike, {BASE} are needed without a reference"


# --- private


def _change(verdict: LatencyVerdict) -> str:
    ratio, low, high = verdict.ratio or 1.0, verdict.ci_low or 1.0, verdict.ci_high or 1.0
    word = "slower" if ratio >= 1 else "faster"
    return f"{abs(100 * (ratio - 1)):.1f} % {word} ({_percent(low)} to {_percent(high)})"


def _percent(ratio: float) -> str:
    """Write 1.2 as `+20.0 %`."""
    return f"{100 * (ratio - 1):+.1f} %"


def _unseen(verdict: LatencyVerdict) -> str:
    if verdict.word is not VerdictWord.INCONCLUSIVE:
        return ""
    return f": too little to conclude from; a true slowdown below {_percent(verdict.detectable or 1.0)} can go unseen"
