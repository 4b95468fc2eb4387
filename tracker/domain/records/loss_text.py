"""A loss in plain numbers, in the same words everywhere. Pure.

loss_text(incident)     # 0.940 at step 600 -> 0.000 since step 700; 79 of 100 samples lost
end_text(incident)      # recovered at step 900, last worse than the baseline at step 700
"""

from collections.abc import Iterable, Mapping

from tracker.domain.records.alerts import subject_text
from tracker.domain.records.display import names_text, score_text, steps_text
from tracker.domain.records.losses import Closing, Drop, Incident, Measure

MEASURES = {
    Measure.SCORE: "",
    Measure.OUTPUT_LENGTH: "share of the token limit ",
    Measure.COMPLETENESS: "share of truncated answers ",
}


Series = Mapping[tuple[str, ...], int]
"""Number of each series, by suite, benchmark and settings."""


def loss_subject(incident: Incident, series: Series) -> str:
    """Return what was lost; `sums, series 2` if it was found with other settings than the first."""
    subject = subject_text(incident.benchmark, incident.subset, incident.measure)
    if not incident.benchmark:
        return subject
    number = series_number_of(incident, series)
    if number == 1:
        return subject
    return f"{subject}, series {number}"


def series_number_of(incident: Incident, series: Series) -> int:
    """Return the number of the series of settings that a loss of a benchmark was found with."""
    return series.get((incident.suite, incident.benchmark, *incident.series), 1)


def open_losses(incidents: Iterable[Incident], series: Series) -> tuple[str, ...]:
    """Return one line for each open loss, the newest first."""
    is_open = [one for one in incidents if one.closed_step is None]
    ordered = sorted(is_open, key=lambda one: (-one.onset_step, one.benchmark, one.subset, one.measure))
    return tuple(f"{loss_subject(one, series)}: {loss_text(one)}" for one in ordered)


def loss_text(incident: Incident) -> str:
    """Return what a loss took and since when; of all benchmarks together, which of them fell."""
    if incident.drop is not None:
        return drop_text(incident.drop, incident.onset_step, incident.measure)
    fell = f" ({names_text(incident.benchmarks)})" if incident.benchmarks else ""
    return f"since step {incident.onset_step}{fell}"


def drop_text(drop: Drop, onset_step: int, measure: Measure = Measure.SCORE) -> str:
    """Return the plain comparison of a loss: before it, since it, and the lost samples."""
    newest = f" (mean of the newest {len(drop.newest_steps)})" if len(drop.newest_steps) > 1 else ""
    now = f"{score_text(drop.now)} since step {onset_step}{newest}"
    before = f"{score_text(drop.before)} at {drop_baseline_text(drop)}"
    return f"{MEASURES[measure]}{before} -> {now}{_samples(drop, measure)}"


def drop_baseline_text(drop: Drop) -> str:
    """Return `steps 300 to 400`, the checkpoints before a loss."""
    return f"{steps_text(drop.baseline_steps)}{' (pinned baseline)' if drop.is_pinned else ''}"


def back_text(score: float | None, drop: Drop | None, lost_since: int, *, is_transient: bool) -> str:
    """Return what a score that is back had been lost from; `drop` is None if that is unknown."""
    again = f"{score_text(score)} again"
    if drop is None:
        return f"{again}, lost since step {lost_since}"
    before = f"{score_text(drop.before)} at {drop_baseline_text(drop)}"
    if is_transient:
        return f"{again}: only step {lost_since} was worse ({before} -> {score_text(drop.now)})"
    return f"{again}, after {score_text(drop.now)} since step {lost_since} (before it {before})"


def end_text(incident: Incident) -> str:
    """Return how a loss ended; `open` for one that has not."""
    if incident.closed_by is None:
        return "open"
    end = _ENDS[incident.closed_by].format(step=incident.closed_step)
    if incident.closed_by is Closing.RECOVERED and incident.last_step is not None:
        return f"{end}, last worse than the baseline at step {incident.last_step}"
    return end


_ENDS = {
    Closing.RECOVERED: "recovered at step {step}",
    Closing.ACCEPTED: "accepted at step {step}",
    Closing.TRANSIENT: "one checkpoint only, back at step {step}",
    Closing.SUPERSEDED: "discarded when training restarted from a step before {step}",
    Closing.EXPLAINED: "explained at step {step}: the score improved",
    Closing.CORRECTED: "corrected: with the checkpoints evaluated since, nothing was lost",
    Closing.REMEASURED: "measured with changed settings since step {step}",
}


def _samples(drop: Drop, measure: Measure) -> str:
    if measure is not Measure.SCORE or not (drop.n_lost or drop.n_gained):
        return ""
    gained = f", {drop.n_gained} gained" if drop.n_gained else ""
    return f"; {drop.n_lost} of {drop.n_common} samples lost{gained}"
