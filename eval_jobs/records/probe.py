"""What was timed: the load, the requests, and what came out. A part of `types`, which passes all of it on."""

from dataclasses import dataclass
from typing import Annotated

from eval_jobs.records.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class RequestSettings:
    """What a person may set of the requests of any load."""

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
    """What a person may set of one load."""

    concurrency: Annotated[int, Bounds(gt=0)] = 4
    """Concurrent requests."""


@dataclass(frozen=True, kw_only=True)
class ProbeLoad(LoadSettings):
    """Traffic of one latency measurement: distinct random prompts, fixed output length.

    A closed loop: the next request is sent when an answer is complete. Or, with a rate, an open one: requests arrive at
    random times, however many are still in flight; the concurrency means nothing then.
    """

    name: str = "default"
    # What others measured and we imported keeps none of the bounds that settings have.
    requests: int = 32
    concurrency: int = 4
    input_tokens: int = 64
    output_tokens: int = 32
    warmup_requests: int = 2
    request_rate: float | None = None
    """Requests that are sent per second, on average; None: as the concurrency says."""


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
    """Times of one completed request; dozens for every checkpoint of a run stay in memory."""

    position: int
    """Place in the order of sending, from 0; our own engine is sent the same prompt at one place in every block."""
    ttft_ms: float
    tpot_ms: float | None
    """None for an answer of one token or of unknown length."""
    e2e_ms: float


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Latency under one load, defined as in `vllm bench serve`. Percentiles are None when nothing completed."""

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
    """Requests of a checkpoint and of a reference in pairs, from blocks candidate, reference, reference, candidate.

    `candidate[i]` and `reference[i]` are one pair: the same place of the first or of the second block of their side.
    """

    load: ProbeLoad
    reference_digest: str
    """`Checkpoint.digest` of the reference."""
    reference_step: int
    candidate: tuple[RequestTiming, ...]
    reference: tuple[RequestTiming, ...]
    first_pairs: int
    """How many of the pairs, from the front, are of the first blocks."""
    dropped: int
    """Pairs left out because a request of either side failed."""


ReferenceOutcome = ReferenceProbe | ProbeFailure
