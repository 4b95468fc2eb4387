"""What goes between the prober and the client process, as one JSON document each way."""

import os
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from eval_jobs.probe.latency import Measurement
from eval_jobs.types import ProbeLoad


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """What the client is to measure."""

    base_url: str
    model: str
    api_key_env: str
    vllm: bool
    """A vLLM server of our own: it takes `cache_salt`, and no other dialect has to be tried."""
    load: ProbeLoad
    request_timeout_s: float
    tokenizer: str = ""
    """Digest of the tokenizer's files; empty: not known."""
    prober_pid: int = field(default_factory=os.getpid)
    """The process that asks; the client ends with it. Asking for its parent would be too late: it may be gone."""


@dataclass(frozen=True, kw_only=True)
class ClientReply:
    """What came out: a measurement, or why there is none."""

    measurement: Measurement | None = None
    error: str = ""


REQUEST = TypeAdapter(ClientRequest)
REPLY = TypeAdapter(ClientReply)
