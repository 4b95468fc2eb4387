"""Latency verdicts -> rows of text. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tracker.domain.latency.statistics import BASE
from tracker.domain.records import reasons
from tracker.domain.records.display import NOTHING, count_text, one_line, p_text
from tracker.domain.records.reason_text import latency_reason_text
from tracker.domain.records.types import LatencyMethod, LatencyVerdict, Report, VerdictWord

TOLD = frozenset({VerdictWord.REGRESSED, VerdictWord.IMPROVED, VerdictWord.SUSPECT})
"""Verdict classes shown for every checkpoint; others only for the newest one."""

UNJUDGED = (reasons.FewRequests, reasons.ShortHistory)


@dataclass(frozen=True, kw_only=True)
class LatencyVerdictRow:
    """One quantile of one metric under one load at one checkpoint."""

    step: int
    subject: str
    load: str
    word: VerdictWord
    ratio: str
    interval: str
    p: str
    level: str
    against: str
    """Step of the reference, or number of earlier checkpoints."""
    method: str
    """Kind of comparison, and number of checkpoints that the ratio is the mean of."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class LatencyVerdicts:
    """Latency verdicts of a report."""

    step: int
    """Step of the newest checkpoint with latency verdicts."""
    newest: tuple[LatencyVerdictRow, ...]
    unjudged: tuple[str, ...]
    """Sentences on what it has too few requests or earlier checkpoints for, instead of rows."""
    earlier: tuple[LatencyVerdictRow, ...]
    """Changes at earlier checkpoints, the newest first."""


def latency_verdicts(reports: Iterable[Report]) -> LatencyVerdicts | None:
    """Return the verdicts of the newest checkpoint and the changes before it; None without any.

    If a step has several reports, the newest one counts.
    """
    by_step = {r.step: r.latency for r in sorted(reports, key=lambda r: (r.step, r.created_at)) if r.latency}
    if not by_step:
        return None
    newest, verdicts = by_step.popitem()
    earlier: list[LatencyVerdictRow] = []
    for step, found in reversed(by_step.items()):
        earlier += [_row(step, verdict) for verdict in found if verdict.word in TOLD]
    rows = tuple(_row(newest, verdict) for verdict in verdicts if not isinstance(verdict.reason, UNJUDGED))
    return LatencyVerdicts(step=newest, newest=rows, unjudged=tuple(_unjudged(verdicts)), earlier=tuple(earlier))


def _unjudged(verdicts: Iterable[LatencyVerdict]) -> Iterator[str]:
    """Yield one sentence for each load and reason; of several reasons of a kind the first, of the lowest quantile."""
    found: dict[object, list[LatencyVerdict]] = {}
    for verdict in verdicts:
        if isinstance(verdict.reason, UNJUDGED):
            found.setdefault((verdict.load, type(verdict.reason)), []).append(verdict)
    for alike in found.values():
        quantiles = " and ".join(dict.fromkeys(f"p{verdict.quantile * 100:.0f}" for verdict in alike))
        yield one_line(f"{quantiles} of load {alike[0].load}: {latency_reason_text(alike[0])}.")


def _row(step: int, verdict: LatencyVerdict) -> LatencyVerdictRow:
    ratio, low, high = verdict.ratio, verdict.ci_low, verdict.ci_high
    return LatencyVerdictRow(
        step=step,
        subject=f"{verdict.metric.upper()} p{verdict.quantile * 100:.0f}",
        load=one_line(verdict.load),
        word=verdict.word,
        ratio=NOTHING if ratio is None else f"{ratio:.3f}",
        interval="" if low is None or high is None else f"{low:.3f} to {high:.3f}",
        p=_p(verdict),
        level=p_text(verdict.alpha_test),
        against=_against(verdict),
        method=_method(verdict),
        reason=one_line(latency_reason_text(verdict)),
    )


def _p(verdict: LatencyVerdict) -> str:
    p, which = verdict.p_faster, "faster"
    if verdict.ratio is not None and verdict.ratio >= 1:
        p, which = verdict.p_slower, "slower"
    if p is None:
        return NOTHING
    return f"{p_text(p)} ({which})"


def _against(verdict: LatencyVerdict) -> str:
    if verdict.method is LatencyMethod.HISTORY and verdict.learned_from:
        return count_text(min(verdict.learned_from, BASE), "checkpoint")
    if verdict.method is not LatencyMethod.HISTORY and verdict.reference_step is not None:
        return f"step {verdict.reference_step}"
    return NOTHING


def _method(verdict: LatencyVerdict) -> str:
    name = "earlier in this run" if verdict.method is LatencyMethod.HISTORY else "reference"
    return f"{name}; mean of {verdict.sessions} ratios" if verdict.sessions > 1 else name
