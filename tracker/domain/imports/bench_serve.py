"""Results of `vllm bench serve --save-result` -> latency under one load. Pure.

Percentiles come from the individual requests if the file has them (--save-detailed), else from the percentiles that
were requested: --metric-percentiles 50,90,95,99. A metric without either is left out. Failed requests are counted, but
are not part of any percentile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from eval_jobs.harness.fields import Fields, finite, whole
from eval_jobs.types import Percentiles, ProbeLoad, ProbeResult, RequestTiming
from tracker.domain.imports.steps import step_of_result
from tracker.domain.imports.types import Given, LeftOut, Sheet, engine_of

_MARKS = frozenset(("request_throughput", "duration", "completed", "total_input_tokens"))
_METRICS = ("ttft", "tpot", "itl", "e2el")
_QUANTILES = ("p50", "p90", "p95", "p99")
_MS = 1000.0


def is_bench_serve(document: Mapping[str, object]) -> bool:
    """Return whether a JSON document is a result of `vllm bench serve`."""
    return document.keys() >= _MARKS


def sheet_of_bench_serve(document: Fields, given: Given) -> Sheet:
    """Return the contents of a result.

    Raises:
        BadData: it cannot be read, has no percentiles at all, or its step cannot be determined.
    """
    requests = _requests(document)
    found = {metric: _percentiles(document, metric, requests) for metric in _METRICS}
    if not any(found.values()):
        raise document.refusal(
            "ttfts",
            "is missing, as are the percentiles of every metric",
            hint="measure with `vllm bench serve --save-result --save-detailed`",
        )
    model = document.text("model_id")
    return Sheet(
        source=given.source,
        step=step_of_result(given, (model,)),
        model=model,
        measured_at=_measured_at(document, given),
        probes=(_probe(document, found, requests),),
        engine=engine_of(document.text("endpoint_type") or document.text("backend") or "unknown"),
        left_out=tuple(
            LeftOut(
                source=given.source,
                name=metric,
                reason="the file contains neither individual requests nor p50, p90, p95 and p99",
            )
            for metric, percentiles in found.items()
            if percentiles is None
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Request:
    """One completed request. Times in milliseconds."""

    position: int
    ttft_ms: float
    gaps_ms: tuple[float, ...] | None
    """Gaps between its events; None if the file does not contain them."""
    output_tokens: int | None

    @property
    def e2e_ms(self) -> float | None:
        if self.gaps_ms is None:
            return None
        return self.ttft_ms + sum(self.gaps_ms)

    @property
    def tpot_ms(self) -> float | None:
        if self.gaps_ms is None or self.output_tokens is None or self.output_tokens < 2:
            return None
        return sum(self.gaps_ms) / (self.output_tokens - 1)


def _requests(document: Fields) -> tuple[_Request, ...]:
    ttfts_ms = _durations_ms(document, "ttfts", document.numbers("ttfts"))
    errors = _listed(document, "errors", len(ttfts_ms))
    gaps = _listed(document, "itls", len(ttfts_ms))
    lengths = _listed(document, "output_lens", len(ttfts_ms))
    found = []
    for position, ttft_ms in enumerate(ttfts_ms):
        if errors[position]:
            continue
        of_one, length = gaps[position], lengths[position]
        if length == 0 and ttft_ms == 0:
            continue  # failed: some versions record it in no other way
        found.append(
            _Request(
                position=position,
                ttft_ms=ttft_ms,
                gaps_ms=_durations_ms(document, "itls", of_one) if isinstance(of_one, list) else None,
                output_tokens=whole(length),
            )
        )
    return tuple(found)


def _durations_ms(document: Fields, name: str, durations_s: Iterable[object]) -> tuple[float, ...]:
    found = [finite(duration) for duration in durations_s]
    known = [duration * _MS for duration in found if duration is not None and duration >= 0]
    if len(known) < len(found):
        raise document.refusal(name, "contains a duration that is not a number from 0 on")
    return tuple(known)


def _amount(document: Fields, name: str) -> float:
    amount = document.number(name)
    if amount < 0:
        raise document.refusal(name, "is negative")
    return amount


def _listed(document: Fields, name: str, length: int) -> Sequence[object]:
    values = document.values.get(name)
    if values is None or length == 0:
        return (None,) * length
    if not isinstance(values, list) or len(values) != length:
        raise document.refusal(name, f"must have {length} values, as many as `ttfts`")
    return values


def _percentiles(document: Fields, metric: str, requests: Sequence[_Request]) -> Percentiles | None:
    times = _times(metric, requests)
    if times:
        p50, p90, p95, p99 = (float(p) for p in np.percentile(times, (50, 90, 95, 99)))
        return Percentiles(p50=p50, p90=p90, p95=p95, p99=p99, mean=float(np.mean(times)))
    named = {quantile: document.optional_number(f"{quantile}_{metric}_ms") for quantile in _QUANTILES}
    known = {name: value for name, value in named.items() if value is not None}
    mean = document.optional_number(f"mean_{metric}_ms")
    if document.optional_number(f"median_{metric}_ms") is not None:
        known.setdefault("p50", document.number(f"median_{metric}_ms"))
    if len(known) < len(_QUANTILES) or mean is None:
        return None
    if min(*known.values(), mean) < 0:
        raise document.refusal(f"mean_{metric}_ms", "or a quantile is negative")
    return Percentiles(**known, mean=mean)


def _times(metric: str, requests: Sequence[_Request]) -> list[float]:
    """Return the times of a metric in milliseconds; empty if a request lacks its gaps (except for TTFT)."""
    times: list[float] = []
    for request in requests:
        if metric == "ttft":
            times.append(request.ttft_ms)
            continue
        if request.gaps_ms is None:
            return []
        if metric == "itl":
            times += request.gaps_ms
            continue
        time = request.tpot_ms if metric == "tpot" else request.e2e_ms
        if time is not None:
            times.append(time)
    return times


def _probe(document: Fields, found: Mapping[str, Percentiles | None], requests: Sequence[_Request]) -> ProbeResult:
    completed = document.count("completed")
    planned = document.count("num_prompts") if "num_prompts" in document.values else completed
    return ProbeResult(
        load=_load(document, planned),
        ttft_ms=found["ttft"],
        tpot_ms=found["tpot"],
        itl_ms=found["itl"],
        e2e_ms=found["e2el"],
        completed=completed,
        failed=max(0, planned - completed),
        duration_s=_amount(document, "duration"),
        output_tokens=document.count("total_output_tokens"),
        requests_per_s=_amount(document, "request_throughput"),
        output_tokens_per_s=_amount(document, "output_throughput"),
        first_error=next((str(e) for e in _listed(document, "errors", len(document.numbers("ttfts"))) if e), ""),
        requests=tuple(
            RequestTiming(position=r.position, ttft_ms=r.ttft_ms, tpot_ms=r.tpot_ms, e2e_ms=r.e2e_ms)
            for r in requests
            if r.e2e_ms is not None
        ),
    )


def _load(document: Fields, planned: int) -> ProbeLoad:
    """Return the load; its name contains all its settings, so different loads are never treated as one."""
    rate = document.optional_number("request_rate")  # `inf` means no rate
    limit = document.values.get("max_concurrency")
    at_once = limit if isinstance(limit, int) and limit > 0 else planned
    pace = f"concurrency {at_once}" if rate is None else f"{rate:g} requests/s"
    if rate is not None and at_once < planned:
        pace += f", max concurrency {at_once}"
    burst = document.optional_number("burstiness")
    if burst not in (None, 1.0):
        pace += f", burstiness {burst:g}"
    tokens_in, tokens_out = _tokens(document, "input", planned), _fixed_length(document)
    length = f"{tokens_out} out" if tokens_out else "variable out"
    return ProbeLoad(
        name=f"{tokens_in} tokens in, {length}, {pace}",
        requests=planned,
        concurrency=at_once,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        warmup_requests=0,
        request_rate=rate,
    )


def _tokens(document: Fields, way: str, planned: int) -> int:
    """Return the mean length of all requests, including failed ones if their lengths are known."""
    lengths = document.numbers(f"{way}_lens")
    if len(lengths) == planned > 0:
        return round(sum(lengths) / planned)
    return round(document.count(f"total_{way}_tokens") / max(1, document.count("completed")))


def _fixed_length(document: Fields) -> int:
    """Return the fixed length of all answers; 0 if the model chose the length, which then varies by checkpoint."""
    lengths = {length for length in document.numbers("output_lens") if length}
    if len(lengths) > 1:
        return 0
    if lengths:
        return int(lengths.pop())
    total, completed = document.count("total_output_tokens"), document.count("completed")
    if completed and total % completed == 0:
        return total // completed
    return 0


def _measured_at(document: Fields, given: Given) -> datetime:
    try:
        return datetime.strptime(document.text("date"), "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return given.modified_at
