"""Noise between the checkpoints of a run, and where it leaves the simulated range -> texts. Pure."""

from collections.abc import Iterator, Sequence

from tracker.domain.records.calibration import NoiseAspect, NoiseOfRun, OutOfRange
from tracker.domain.records.display import count_text, names_text, one_line, span_text
from tracker.domain.records.types import Report

_MAX_NAMES = 6


def newest_noise(reports: Sequence[Report]) -> tuple[NoiseOfRun, ...]:
    """Return the newest noise of every suite; `reports` ordered by step."""
    found: list[NoiseOfRun] = []
    seen: set[str] = set()
    for report in reversed(reports):
        if report.noise is None:
            continue
        names = {one.benchmark for one in report.noise.benchmarks}
        if seen.isdisjoint(names):
            found.append(report.noise)
        seen |= names
    return tuple(found)


def noise_facts(noise: NoiseOfRun) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each aspect."""
    jitters = tuple(f"{one.benchmark} {_number(100 * one.jitter)}" for one in noise.benchmarks)
    yield "jitter, in points", names_text(jitters, at_most=_MAX_NAMES)
    yield "persistence", f"{noise.persistence:.2f} (correlation of the jitter at neighbouring checkpoints)"
    differences = count_text(noise.differences, "second difference")
    if noise.tails is None:
        yield "tails", f"unknown: {differences}"
    else:
        yield "tails", f"{noise.tails:.1f} times as long as those of normal noise ({differences})"
    counts = sorted(one.checkpoints for one in noise.benchmarks)
    yield "estimated from", f"{span_text(counts)} checkpoints of each benchmark"


def range_text(noise: NoiseOfRun) -> str:
    """Return a sentence on what leaves the range in which the error rate was simulated; empty for nothing."""
    if not noise.out_of_range:
        return ""
    found = "; ".join(map(_beyond, noise.out_of_range))
    start = "The error rate was not shown for this noise between checkpoints, so false alarms may be more frequent"
    return f"{start}: {found}."


def _beyond(one: OutOfRange) -> str:
    match one.aspect:
        case NoiseAspect.JITTER:
            name, points = one_line(one.benchmark), _number(100 * one.value)
            return f"{name} has a jitter of {points} points (shown up to {100 * one.limit:g})"
        case NoiseAspect.SPREAD:
            return f"jitters differ {one.value:.0f}-fold (shown up to {one.limit:g})"
        case NoiseAspect.PERSISTENCE:
            alike = "a learning curve that bends looks alike"
            return f"jitter persists with a correlation of {one.value:.2f} (shown up to {one.limit:g}; {alike})"
        case NoiseAspect.TAILS:
            return f"tails are {one.value:.1f} times as long as normal ones (shown up to {one.limit:g})"


def _number(points: float) -> str:
    return f"{points:.1f}" if points >= 1 else f"{points:.2f}"
