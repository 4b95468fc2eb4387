"""Latency measurements: the load, the requests and the results. A part of `types`, which re-exports all of it."""

from dataclasses import dataclass
from typing import Annotated

from eval_jobs.records.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class RequestSettings:
    """Settings of the requests of any load."""

    requests: Annotated[int, Bounds(gt=0)] = 32
    """Number of timed requests."""
    input_tokens: Annotated[int, Bounds(gt=0)] = 64
    """Prompt length, in tokens."""
    output_tokens: Annotated[int, Bounds(gt=1)] = 32
    """Output length in tokens; the end-of-sequence token is ignored."""
    warmup_requests: Annotated[int, Bounds(ge=0)] = 2
    """Number of untimed warm-up requests."""
    seed: int = 0
    """Random seed of prompts and of request arrivals."""


@dataclass(frozen=True, kw_only=True)
class LoadSettings(RequestSettings):
    """Settings of one load."""

    requests: Annotated[int, Bounds(gt=0)] = 100
    """Number of timed requests. Medians are judged from 100 on, 95th percentiles from 200; with `reference` half."""
    concurrency: Annotated[int, Bounds(gt=0)] = 4
    """Concurrent requests."""


@dataclass(frozen=True, kw_only=True)
class ProbeLoad(LoadSettings):
    """Traffic of one latency measurement: distinct random prompts, fixed output length.

    A closed loop: the next request is sent when a response is complete. With a rate, an open loop: requests arrive at
    random times, independent of the number in flight, and the concurrency is ignored.
    """

    name: str = "default"
    # Imported measurements may be outside the bounds of the settings.
    requests: int = 32
    concurrency: int = 4
    input_tokens: int = 64
    output_tokens: int = 32
    warmup_requests: int = 2
    request_rate: float | None = None
    """Average number of requests sent per second. None: a closed loop with `concurrency`."""


@dataclass(frozen=True, kw_only=True)
class Percentiles:
    """Percentiles over completed requests, linear interpolation as in numpy."""

    p50: float
    p90: float
    p95: float
    p99: float
    mean: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTiming:
    """Times of one completed request. Dozens for every checkpoint of a run stay in memory."""

    position: int
    """Position in the order of sending, from 0. An engine of the tracker gets the same prompts in every block."""
    ttft_ms: float
    tpot_ms: float | None
    """None: a response of one token or of unknown length."""
    e2e_ms: float


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Latency under one load, defined as in `vllm bench serve`. Percentiles are None if no request completed."""

    load: ProbeLoad
    ttft_ms: Percentiles | None
    """Send to first event with choices."""
    tpot_ms: Percentiles | None
    """(e2e - ttft) / (output_tokens - 1) per request with more than one token."""
    itl_ms: Percentiles | None
    """Gaps between events, pooled over requests."""
    e2e_ms: Percentiles | None
    """Send to last event with choices."""
    completed: int
    failed: int
    duration_s: float
    output_tokens: int
    requests_per_s: float
    output_tokens_per_s: float
    first_error: str = ""
    requests: tuple[RequestTiming, ...] = ()
    """Completed requests in order of sending."""


@dataclass(frozen=True, kw_only=True)
class ProbeFailure:
    """A load that could not be measured."""

    load: ProbeLoad
    code: str
    message: str
    hint: str


ProbeOutcome = ProbeResult | ProbeFailure


@dataclass(frozen=True, kw_only=True)
class ReferenceProbe:
    """Paired requests of a checkpoint and a reference, from blocks candidate, reference, reference, candidate.

    `candidate[i]` and `reference[i]` are one pair: the same position in the first or second block of their side.
    """

    load: ProbeLoad
    reference_digest: str
    """`Checkpoint.digest` of the reference."""
    reference_step: int
    candidate: tuple[RequestTiming, ...]
    reference: tuple[RequestTiming, ...]
    first_pairs: int
    """Number of leading pairs that come from the first blocks."""
    dropped: int
    """Number of pairs left out because a request of either side failed."""


ReferenceOutcome = ReferenceProbe | ProbeFailure
