"""Distributions of request times at one checkpoint, next to those it is compared with. Pure.

A median alone hides the tail: half of the requests are slower. The curves show the whole distribution.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards.charts.ecdf import Curve, Ecdf
from eval_jobs.types import EvalRecord, ProbeFailure, ProbeLoad, ReferenceProbe, RequestTiming
from tracker.domain.latency.series import probe_of, time_of
from tracker.domain.records.display import count_text, one_line
from tracker.domain.records.types import LatencyMetric

SHOWN = (5, 25, 50, 75, 90, 95, 99)
"""Percentiles of the table."""


@dataclass(frozen=True, kw_only=True)
class SpreadRow:
    """One metric of one side, in ms."""

    metric: str
    side: str
    requests: int
    percentiles: tuple[str, ...]
    """Times at the percentiles in `SHOWN`, then the maximum."""


@dataclass(frozen=True, kw_only=True)
class LoadSpread:
    """One load at one checkpoint."""

    load: str
    note: str
    """What it is compared with and how reliable that is, or why there is nothing to show."""
    figures: tuple[Ecdf, ...]
    rows: tuple[SpreadRow, ...]


TITLES = {
    LatencyMetric.TTFT: "Time to first token (TTFT), ms",
    LatencyMetric.TPOT: "Time per output token (TPOT), ms",
    LatencyMetric.E2E: "End-to-end latency (E2E), ms",
}


def load_spreads(record: EvalRecord, before: EvalRecord | None) -> tuple[LoadSpread, ...]:
    """Return every load of a record with its reference, or else with the previous checkpoint.

    A reference that was timed alternately with the checkpoint is the comparison; else it is `before`.
    """
    return tuple(_spread(record, before, probe.load, f"spread-{at}") for at, probe in enumerate(record.probes))


def times_of(requests: Sequence[RequestTiming], metric: LatencyMetric) -> tuple[float, ...]:
    """Return the times of one metric in ms, ascending; requests without one are omitted."""
    return tuple(sorted(time for request in requests if (time := time_of(request, metric)) is not None))


_Sides = Mapping[str, tuple[RequestTiming, ...]]
"""Name of each side -> its requests; the checkpoint's own first."""


def _spread(record: EvalRecord, before: EvalRecord | None, load: ProbeLoad, ident: str) -> LoadSpread:
    name = one_line(load.name)
    sides, note = _sides(record, before, load)
    figures: list[Ecdf] = []
    rows: list[SpreadRow] = []
    for metric in LatencyMetric:
        curves = tuple(_curves(metric, sides))
        if curves:
            figures.append(_figure(f"{ident}-{metric.name}", name, metric, curves))
        rows += [_row(metric, curve) for curve in curves]
    return LoadSpread(load=name, note=note, figures=tuple(figures), rows=tuple(rows))


def _sides(record: EvalRecord, before: EvalRecord | None, load: ProbeLoad) -> tuple[_Sides, str]:
    step = record.plan.checkpoint.step
    for pairs in record.reference_probes:
        if isinstance(pairs, ReferenceProbe) and pairs.load.name == load.name:
            both = {f"step {step}": pairs.candidate, f"step {pairs.reference_step}, reference": pairs.reference}
            return both, f"{count_text(len(pairs.candidate), 'pair')} of requests, alternating on the same engine."
    own = next((probe for probe in record.probes if probe.load.name == load.name), None)
    if isinstance(own, ProbeFailure):
        return {}, f"Not measured: {one_line(own.message)} ({one_line(own.code)})."
    if own is None or not own.requests:
        return {}, "Only percentiles are available, no individual requests."
    side = {f"step {step}": own.requests}
    known = None if before is None else probe_of(before, load)
    if before is None or known is None or not known.requests:
        return side, "No previous checkpoint to compare with under this load."
    earlier = {f"step {before.plan.checkpoint.step}, previous": known.requests}
    return side | earlier, "Measured at different times: other load on the machine may affect the difference."


def _curves(metric: LatencyMetric, sides: _Sides) -> Iterator[Curve]:
    for slot, (name, requests) in enumerate(sides.items()):
        times = times_of(requests, metric)
        if times:
            yield Curve(name=name, slot=slot, values=times)


def _figure(ident: str, load: str, metric: LatencyMetric, curves: tuple[Curve, ...]) -> Ecdf:
    medians = ", ".join(f"{curve.name}: median {float(np.median(curve.values)):.3g} ms" for curve in curves)
    return Ecdf(
        ident=ident,
        title=TITLES[metric],
        description=f"Cumulative distribution of request times under load {load}; {medians}.",
        curves=curves,
    )


def _row(metric: LatencyMetric, side: Curve) -> SpreadRow:
    found = (*np.percentile(side.values, SHOWN).tolist(), side.values[-1])
    percentiles = tuple(map(_short, found))
    return SpreadRow(metric=metric.name, side=side.name, requests=len(side.values), percentiles=percentiles)


def _short(value: float) -> str:
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}"
