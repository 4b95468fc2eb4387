"""Timelines of single requests -> TTFT, TPOT, ITL, E2E. Pure; the definitions are those of `vllm bench serve`.

An event is one `data:` line of the stream whose `choices` is not empty; its text may be empty. Events are not tokens:
a server may send several tokens in one event, so the number of tokens is the usage that the server reports.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eval_jobs.types import Percentiles, ProbeLoad, ProbeResult, RequestTiming

MS = 1000.0


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Timeline of one request. Times are seconds on one monotonic clock."""

    sent_s: float
    events_s: tuple[float, ...] = ()
    """Arrival times of the events, in order."""
    output_tokens: int | None = None
    """`usage.completion_tokens`; None when the server does not report it."""
    prompt_tokens: int | None = None
    """`usage.prompt_tokens`."""
    error: str = ""
    """Why the request failed; empty: it completed."""

    @property
    def completed(self) -> bool:
        """Whether its times enter the figures."""
        return not self.error and bool(self.events_s)

    @property
    def ttft_s(self) -> float:
        """Time from sending to the first event of a completed request."""
        return self.events_s[0] - self.sent_s

    @property
    def e2e_s(self) -> float:
        """Time from sending to the last event of a completed request."""
        return self.events_s[-1] - self.sent_s


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Timelines of all requests of one load."""

    timelines: tuple[Timeline, ...]
    duration_s: float
    """Time from the first send to the end of the last request."""
    client_waited_s: float = 0.0
    """Time in which the client itself waited for a CPU; a large share of `duration_s` makes every figure too large."""


def summarize(load: ProbeLoad, measurement: Measurement) -> ProbeResult:
    """Return the latency figures of `measurement`; failed requests are counted, but enter no figure."""
    in_order = sorted(measurement.timelines, key=lambda t: t.sent_s)
    requests = {position: timeline for position, timeline in enumerate(in_order) if timeline.completed}
    done = requests.values()
    timings = tuple(map(_timing, requests, done))
    tokens = sum(timeline.output_tokens or 0 for timeline in done)
    over_s = measurement.duration_s if measurement.duration_s > 0 else math.inf
    return ProbeResult(
        load=load,
        ttft_ms=percentiles([t.ttft_ms for t in timings]),
        tpot_ms=percentiles([t.tpot_ms for t in timings if t.tpot_ms is not None]),
        itl_ms=percentiles(list(_gaps_ms(done))),
        e2e_ms=percentiles([t.e2e_ms for t in timings]),
        completed=len(done),
        failed=len(in_order) - len(done),
        duration_s=measurement.duration_s,
        output_tokens=tokens,
        requests_per_s=len(done) / over_s,
        output_tokens_per_s=tokens / over_s,
        first_error=_first_error(in_order),
        requests=timings,
    )


def tpot_s(timeline: Timeline) -> float | None:
    """Return (e2e - ttft) / (n - 1); None for a completed request of one token or of unknown length."""
    n = timeline.output_tokens
    if n is None or n <= 1:
        return None
    return (timeline.e2e_s - timeline.ttft_s) / (n - 1)


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """Return percentiles with linear interpolation, as `numpy.percentile`; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return Percentiles(
        p50=_percentile(ordered, 50),
        p90=_percentile(ordered, 90),
        p95=_percentile(ordered, 95),
        p99=_percentile(ordered, 99),
        mean=math.fsum(ordered) / len(ordered),
    )


def _gaps_ms(done: Iterable[Timeline]) -> Iterator[float]:
    for timeline in done:
        for earlier, later in pairwise(timeline.events_s):
            yield (later - earlier) * MS


def _first_error(timelines: Iterable[Timeline]) -> str:
    for timeline in timelines:
        if not timeline.completed:
            return timeline.error or "no event in the stream"
    return ""


def _timing(position: int, timeline: Timeline) -> RequestTiming:
    tpot = tpot_s(timeline)
    return RequestTiming(
        position=position,
        ttft_ms=timeline.ttft_s * MS,
        tpot_ms=None if tpot is None else tpot * MS,
        e2e_ms=timeline.e2e_s * MS,
    )


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Interpolate at rank (n - 1) * percent / 100."""
    whole, hundredths = divmod((len(ordered) - 1) * percent, 100)
    if hundredths == 0:
        return ordered[whole]
    return ordered[whole] + (ordered[whole + 1] - ordered[whole]) * hundredths / 100
