"""From reports and gaps to alerts: once when a cause appears, once when it is gone. Pure.

    for alert in alerts_for(report, history.open_alerts(run_id)):
        ...  # tell people, then store it

One cause of one benchmark has one fingerprint, so that repeating a step after a crash repeats nothing new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eval_jobs.identity import content_hash
from tracker.domain.types import Alert, AlertState, Gap, Report, Verdict, VerdictWord

CAUSES = (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN, VerdictWord.MISSING)
_LOSSES = (VerdictWord.REGRESSED, VerdictWord.FORGOTTEN)


def alerts_for(report: Report, open_alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    """Return what people must be told: causes that are new, and open ones that are gone.

    A regression that becomes forgetting fires once more. A missing or incomparable result says nothing about a
    regression, so that one stays open. Reports of steps before an alert's step never resolve it.
    """
    firing = {a.fingerprint: a for a in open_alerts if a.state is AlertState.FIRING and a.run_id == report.run_id}
    return tuple(alert for verdict in report.verdicts for alert in _alerts_of(report, verdict, firing))


def alert_of_gap(gap: Gap) -> Alert:
    """Return the alert of a checkpoint that will not be evaluated."""
    return Alert(
        fingerprint=content_hash([gap.run_id, "checkpoint", gap.step, gap.code]),
        run_id=gap.run_id,
        step=gap.step,
        subject="checkpoint",
        state=AlertState.FIRING,
        message=f"checkpoint {gap.step} will not be evaluated: {gap.message} ({gap.hint})",
        raised_at=gap.seen_at,
    )


# --- private


def _alerts_of(report: Report, verdict: Verdict, firing: Mapping[str, Alert]) -> Iterator[Alert]:
    if verdict.word in CAUSES and not _is_covered(report, verdict, firing):
        message = f"{verdict.benchmark} {verdict.word} at step {report.step}: {verdict.reason}"
        yield _alert(report, verdict, verdict.word, AlertState.FIRING, message)
    for cause in _gone(verdict.word):
        known = firing.get(_fingerprint(report.run_id, verdict.benchmark, cause))
        if known is not None and known.step <= report.step:
            message = f"{verdict.benchmark} no longer {cause} at step {report.step}: {verdict.reason}"
            yield _alert(report, verdict, cause, AlertState.RESOLVED, message)


def _is_covered(report: Report, verdict: Verdict, firing: Mapping[str, Alert]) -> bool:
    # What is known to be forgotten is not announced again as a mere regression.
    causes = _LOSSES if verdict.word is VerdictWord.REGRESSED else (verdict.word,)
    return any(_fingerprint(report.run_id, verdict.benchmark, cause) in firing for cause in causes)


def _gone(word: VerdictWord) -> tuple[VerdictWord, ...]:
    if word is VerdictWord.MISSING:
        return ()
    if word in (*_LOSSES, VerdictWord.INCOMPARABLE):
        return (VerdictWord.MISSING,)
    return CAUSES


def _alert(report: Report, verdict: Verdict, cause: VerdictWord, state: AlertState, message: str) -> Alert:
    return Alert(
        fingerprint=_fingerprint(report.run_id, verdict.benchmark, cause),
        run_id=report.run_id,
        step=report.step,
        subject=verdict.benchmark,
        state=state,
        message=message,
        raised_at=report.created_at,
    )


def _fingerprint(run_id: str, benchmark: str, cause: VerdictWord) -> str:
    return content_hash([run_id, benchmark, cause])
