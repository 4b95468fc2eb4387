"""From reports and gaps to alerts: one when a cause appears, one when it ends. Pure.

One cause of one benchmark has one fingerprint, so that repeating a step after a crash creates no duplicates.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from eval_jobs.errors import CheckpointsUnnamed
from eval_jobs.identity import content_hash
from eval_jobs.types import EvalRecord
from tracker.domain.alerts.evidence import comparing, corrects, evidence_of_latency, evidence_of_loss, looking
from tracker.domain.calibration.noise import repetition
from tracker.domain.calibration.repetition_text import is_unfit, repetition_text, unfit_text
from tracker.domain.records.alerts import Alert, AlertKind, AlertState, AlertSubject, SubjectKind, alert_subject_text
from tracker.domain.records.calibration import Calibration, Fitness, Repetition
from tracker.domain.records.loss_text import end_text, loss_text
from tracker.domain.records.losses import Acceptance, Closing, Incident, Measure
from tracker.domain.records.reason_text import latency_reason_text, reason_text
from tracker.domain.records.reasons import Together
from tracker.domain.records.types import IS_BACK, WORSE, Gap, LatencyVerdict, Report, Verdict, VerdictWord
from tracker.domain.scores.suspicion import word_of_loss

CHECKPOINT = AlertSubject(kind=SubjectKind.CHECKPOINT)


Keys = Collection[tuple[str | int, ...]]
"""Keys of incidents."""


def alerts_for(
    report: Report, open_alerts: Sequence[Alert], later: Iterable[EvalRecord] = (), *, not_yet: Keys = ()
) -> tuple[Alert, ...]:
    """Return the alerts of a report that begin or end: losses, missing results, latency, and gaps that were filled.

    One loss is one alert, however many checkpoints show it. Reports of steps before an alert's step never resolve it.
    A missing result raises no alert if one of the `later` checkpoints, evaluated before, has it; nor do
    losses whose keys are in `not_yet`.
    """
    seen = {o.benchmark for record in later for o in record.results}
    blind = (_of_blind_spot(report, v) for v in report.verdicts if not (_is_missing(v) and v.benchmark in seen))
    found = [
        *_of_losses(report, open_alerts, not_yet),
        *blind,
        *_of_latency(report),
        *_of_gaps(report, open_alerts),
    ]
    return _news_of(found, report, open_alerts)


def loss_alerts(report: Report, open_alerts: Sequence[Alert], *, not_yet: Keys = ()) -> tuple[Alert, ...]:
    """Return the alerts of losses only, for a report that was recomputed; the others were sent before."""
    return _news_of(_of_losses(report, open_alerts, not_yet), report, open_alerts)


def ended_alerts(incidents: Iterable[Incident], open_alerts: Iterable[Alert], now: datetime) -> Iterator[Alert]:
    """Yield the end of alerts whose loss is over, and which another process raised at the same time."""
    firing = {a.fingerprint: a for a in open_alerts}
    for incident in incidents:
        known = firing.get(_fingerprint_of(incident))
        if known is not None and incident.closed_step is not None:
            yield replace(
                known,
                step=max(known.step or 0, incident.closed_step),
                state=AlertState.RESOLVED,
                message=f"{alert_subject_text(known.subject)}: {end_text(incident)}",
                raised_at=now,
            )


def alert_of_acceptance(incident: Incident, acceptance: Acceptance) -> Alert:
    """Return the resolved alert of an incident that was accepted."""
    subject = _subject_of(incident)
    return Alert(
        fingerprint=_fingerprint_of(incident),
        run_id=incident.run_id,
        step=acceptance.step,
        kind=AlertKind.LOSS,
        subject=subject,
        state=AlertState.RESOLVED,
        message=f"{alert_subject_text(subject)}: score level at step {acceptance.step} accepted: {acceptance.reason}",
        raised_at=acceptance.accepted_at,
    )


def reason_without_alert(incident: Incident, open_alerts: Iterable[Alert]) -> str:
    """Return why an open loss has no alert of its own; "" for one that has, or is over."""
    if incident.closed_step is not None:
        return ""
    if incident.measure is Measure.OUTPUT_LENGTH:
        return "longer answers raise no alert"
    of_losses = [alert for alert in open_alerts if alert.kind is AlertKind.LOSS]
    if _fingerprint_of(incident) in {alert.fingerprint for alert in of_losses}:
        return ""
    if incident.benchmark and CHECKPOINT in {alert.subject for alert in of_losses}:
        return "part of the alert for all benchmarks"
    return ""


def alert_of_gap(gap: Gap) -> Alert:
    """Return the alert of a checkpoint that will not be evaluated."""
    which = "checkpoints" if gap.code == CheckpointsUnnamed.code else f"checkpoint {gap.step}"
    return Alert(
        fingerprint=_fingerprint_of_gap(gap.run_id, gap.step, gap.code),
        run_id=gap.run_id,
        step=gap.steps[-1],
        kind=AlertKind.CHECKPOINT,
        subject=CHECKPOINT,
        state=AlertState.FIRING,
        message=f"{which} will not be evaluated: {gap.message} (hint: {gap.hint})",
        command=looking(gap.run_id),
        raised_at=gap.seen_at,
    )


def alerts_of_calibration(
    calibration: Calibration, open_alerts: Sequence[Alert], *, min_effect: float
) -> tuple[Alert, ...]:
    """Return one alert for each benchmark that a calibration shows to be unfit, or to be no longer unfit.

    A benchmark of a run has one alert, whatever its settings: the fix is a calibration with other settings.
    """
    run_id = calibration.plan.checkpoint.run_id
    firing = _firing(open_alerts, run_id)
    found = (_of_repetition(repetition(calibration, asked, min_effect)) for asked in calibration.benchmarks)
    return tuple(alert for alert in found if (alert.state is AlertState.FIRING) != (alert.fingerprint in firing))


_MEDIAN = 0.5
_MARGIN = 1.05


def _is_no_slower(verdict: LatencyVerdict) -> bool:
    return verdict.ci_high is not None and verdict.ci_high < _MARGIN


def _of_gaps(report: Report, open_alerts: Iterable[Alert]) -> Iterator[Alert]:
    """Resolve alerts of a checkpoint that was reported as a gap: it was finished late or evaluated on demand."""
    unnamed = _fingerprint_of_gap(report.run_id, 0, CheckpointsUnnamed.code)
    for alert in open_alerts:
        is_same = alert.step == report.step or alert.fingerprint == unnamed
        if alert.kind is AlertKind.CHECKPOINT and is_same:
            message = f"checkpoint {report.step} was evaluated after all"
            yield replace(alert, state=AlertState.RESOLVED, message=message, raised_at=report.created_at)


def _of_losses(report: Report, open_alerts: Iterable[Alert], not_yet: Keys) -> Iterator[Alert]:
    firing = _firing(open_alerts, report.run_id)
    verdicts = {(v.benchmark, v.subset, v.measure): v for v in (*report.verdicts, *report.findings)}
    together = _lost_together(report)
    for incident in report.incidents:
        fingerprint = _fingerprint_of(incident)
        if not _needs_attention(incident, together, is_firing=fingerprint in firing, is_held=incident.key in not_yet):
            continue
        subject = _subject_of(incident)
        verdict = verdicts.get((incident.benchmark, incident.subset, incident.measure))
        # A loss that a late result leaves to one checkpoint alone ends its alert, until another one shows it.
        is_open, is_left = _is_shown(incident), incident.closed_by is Closing.SUPERSEDED
        yield Alert(
            fingerprint=fingerprint,
            run_id=report.run_id,
            # Also resolves an alert of a later step of the discarded branch.
            step=max(report.step, incident.opened_step) if is_left else report.step,
            kind=AlertKind.LOSS,
            subject=subject,
            state=AlertState.FIRING if is_open else AlertState.RESOLVED,
            message=f"{alert_subject_text(subject)}{_what_became_of(incident, verdict, report.step)}",
            evidence=evidence_of_loss(incident, report.pending_steps if is_open else ()),
            command=comparing(incident),
            raised_at=report.created_at,
        )


def _needs_attention(incident: Incident, together: Verdict | None, *, is_firing: bool, is_held: bool) -> bool:
    """Return whether an incident is a notification of its own; `together` is a loss of all benchmarks."""
    if incident.measure is Measure.OUTPUT_LENGTH:
        return False  # longer answers are shown, but only the score tells whether they are worse
    if is_firing:
        return True  # one that was sent before must still become right
    # A loss that all benchmarks have together is one alert.
    return not is_held and not _is_covered(incident, together)


def _is_shown(incident: Incident) -> bool:
    if incident.provisional:
        return False
    return incident.closed_step is None


def _lost_together(report: Report) -> Verdict | None:
    """Return the verdict of a lasting loss of all benchmarks together."""
    return next((v for v in report.findings if not v.benchmark and v.word is VerdictWord.REGRESSED), None)


def _is_covered(incident: Incident, together: Verdict | None) -> bool:
    """Return whether an open loss of a benchmark is part of a loss of all benchmarks."""
    if not _is_shown(incident) or not incident.benchmark:
        return False
    if together is None or not isinstance(together.reason, Together):
        return False
    is_one = incident.benchmark in {fall.benchmark for fall in together.reason.falls}
    return is_one and incident.onset_step >= (together.lost_since or 0)


def _what_became_of(incident: Incident, verdict: Verdict | None, step: int) -> str:
    if incident.closed_by is Closing.SUPERSEDED:
        return f": loss discarded, training restarted from a step before {incident.closed_step}"
    if incident.closed_by is Closing.CORRECTED:
        return f": no loss with the checkpoints evaluated since{_word_since(verdict, step)}"
    is_remeasured = incident.closed_by is Closing.REMEASURED
    if verdict is not None and verdict.word in WORSE | IS_BACK and not is_remeasured:
        return f" {verdict.word} at step {step}: {reason_text(verdict)}"
    if incident.closed_step is not None:
        return f": {end_text(incident)}{_with_new_settings(incident, verdict)}"
    if verdict is None:
        return ": loss reopened, training restarted from a step before the recovery"
    return f" {word_of_loss(incident)}: {loss_text(incident)}"


def _with_new_settings(incident: Incident, verdict: Verdict | None) -> str:
    """Return the note that a loss lasts with changed settings, under an alert of its own; else empty."""
    if incident.closed_by is not Closing.REMEASURED or verdict is None or verdict.word not in WORSE:
        return ""
    return f", still {verdict.word}"


def _word_since(verdict: Verdict | None, step: int) -> str:
    """Return the verdict after a correction; empty if it is worse, and so about another loss."""
    if verdict is None or verdict.word in WORSE:
        return ""
    return f": {verdict.word} at step {step}"


def _of_latency(report: Report) -> Iterator[Alert]:
    """Yield one alert per load: firing if any quantile is slower, resolved once every median is shown not to be."""
    for load in dict.fromkeys(v.load for v in report.latency):
        verdicts = [v for v in report.latency if v.load == load]
        slower = [v for v in verdicts if v.word is VerdictWord.REGRESSED]
        if not slower and not all(_is_no_slower(v) for v in verdicts if v.quantile == _MEDIAN):
            continue
        named = (f"{v.metric.upper()} p{v.quantile * 100:.0f} {latency_reason_text(v)}" for v in slower)
        reason = "; ".join(named) or "no longer slower"
        yield Alert(
            fingerprint=content_hash([report.run_id, "latency", load]),
            run_id=report.run_id,
            step=report.step,
            kind=AlertKind.LATENCY,
            subject=AlertSubject(kind=SubjectKind.LATENCY, name=load),
            state=AlertState.FIRING if slower else AlertState.RESOLVED,
            message=f"latency under load {load} at step {report.step}: {reason}",
            evidence=evidence_of_latency(slower),
            command=f"tracker report {shlex.quote(report.run_id)}",
            raised_at=report.created_at,
        )


def _subject_of(incident: Incident) -> AlertSubject:
    if not incident.benchmark:
        return CHECKPOINT
    return AlertSubject(
        kind=SubjectKind.BENCHMARK, name=incident.benchmark, subset=incident.subset, measure=incident.measure
    )


def _of_repetition(found: Repetition) -> Alert:
    unfit = is_unfit(found)
    fit = f"{found.benchmark} is no longer flagged as too noisy: {repetition_text(found)}"
    return Alert(
        fingerprint=content_hash([found.run_id, found.benchmark, Fitness.UNFIT]),
        run_id=found.run_id,
        step=found.step,
        kind=AlertKind.UNFIT,
        subject=AlertSubject(kind=SubjectKind.BENCHMARK, name=found.benchmark),
        state=AlertState.FIRING if unfit else AlertState.RESOLVED,
        message=unfit_text(found) if unfit else fit,
        command=f"tracker calibrate {shlex.quote(f'{found.run_id}@{found.step}')}",
        raised_at=found.measured_at,
    )


def _is_missing(verdict: Verdict) -> bool:
    return verdict.word is VerdictWord.MISSING


def _of_blind_spot(report: Report, verdict: Verdict) -> Alert:
    missing, reason = _is_missing(verdict), reason_text(verdict)
    return Alert(
        fingerprint=content_hash([report.run_id, verdict.benchmark, VerdictWord.MISSING]),
        run_id=report.run_id,
        step=report.step,
        kind=AlertKind.MISSING,
        subject=AlertSubject(kind=SubjectKind.BENCHMARK, name=verdict.benchmark),
        state=AlertState.FIRING if missing else AlertState.RESOLVED,
        message=f"{verdict.benchmark}{'' if missing else ': result no longer missing'} at step {report.step}: {reason}",
        command=f"tracker evaluate {shlex.quote(report.checkpoint.uri)}",
        raised_at=report.created_at,
    )


def _news_of(found: Iterable[Alert], report: Report, open_alerts: Sequence[Alert]) -> tuple[Alert, ...]:
    firing = _firing(open_alerts, report.run_id)
    news = []
    for alert in found:
        known = firing.get(alert.fingerprint)
        if known is not None and corrects(alert, known):
            news.append(replace(alert, is_correction=True))
        elif _is_news(alert, known):
            news.append(alert)
    return tuple(news)


def _firing(open_alerts: Iterable[Alert], run_id: str) -> dict[str, Alert]:
    return {a.fingerprint: a for a in open_alerts if a.state is AlertState.FIRING and a.run_id == run_id}


def _is_news(alert: Alert, known: Alert | None) -> bool:
    if alert.state is AlertState.FIRING:
        return known is None
    return known is not None and (known.step or 0) <= (alert.step or 0)


def _fingerprint_of_gap(run_id: str, step: int, code: str) -> str:
    return content_hash([run_id, "checkpoint", step, code])


def _fingerprint_of(incident: Incident) -> str:
    return content_hash([*incident.key])
