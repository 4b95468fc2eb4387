"""Messages between the prober and the client process, one JSON document in each direction."""

import os
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from eval_jobs.probe.latency import Measurement
from eval_jobs.types import ProbeLoad


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """Request to the client to measure one load."""

    base_url: str
    model: str
    api_key_env: str
    vllm: bool
    """Whether it is our own vLLM server: it supports `cache_salt`, and no other dialect has to be tried."""
    load: ProbeLoad
    request_timeout_s: float
    tokenizer: str = ""
    """Digest of the tokenizer's files; empty if not known."""
    prober_pid: int = field(default_factory=os.getpid)
    """Process id of the prober; the client exits with it. At startup, `os.getppid()` is too late: it may be dead."""


@dataclass(frozen=True, kw_only=True)
class ClientReply:
    """Reply of the client: a measurement, or why there is none."""

    measurement: Measurement | None = None
    error: str = ""


REQUEST = TypeAdapter(ClientRequest)
REPLY = TypeAdapter(ClientReply)
