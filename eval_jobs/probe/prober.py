"""Latency of an endpoint under a fixed load, measured by a separate client process (client/main.py)."""

import hashlib
import logging
import math
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

from pydantic import ValidationError

from eval_jobs import limits
from eval_jobs.errors import ProbeError
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import TooLarge
from eval_jobs.host.local_http import ERRORS, request
from eval_jobs.probe.client_process import ClientEnded, ClientProcess
from eval_jobs.probe.latency import Measurement, summarize
from eval_jobs.probe.wire import REPLY, REQUEST, ClientRequest
from eval_jobs.types import Endpoint, ProbeLoad, ProbeResult

log = logging.getLogger(__name__)

VLLM = "vllm"
"""`EngineInfo.name` of an engine with the routes /metrics and /tokenize."""
MAX_WAITED = 0.1
"""Share of the time that the client may wait for a CPU without a warning."""
IDLE_POLL_S = 0.1
_TOKENIZER = re.compile(r"tokenizer.*|vocab.*|merges\.txt|added_tokens\.json|special_tokens_map\.json|.*\.tiktoken")
METRICS_TIMEOUT_S = 5.0
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
"""Of vLLM's /metrics: requests in flight."""


@dataclass(kw_only=True, eq=False)
class LatencyProber:
    """`eval_jobs.ports.Prober`; keeps only its client process between calls."""

    timeout_s: float = 900.0
    """For one whole load, including the warm-up."""
    request_timeout_s: float = 120.0
    """For one response; a slower one counts as failed."""
    idle_timeout_s: float = 30.0
    """How long to wait for a busy server before the probe fails."""
    keep_client_s: float = 60.0
    """How long the client is kept after its last measurement."""
    client: ClientProcess | None = field(default=None, init=False)
    """None: it is not running."""
    _used_s: float = field(default=0.0, init=False)

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        """Measure the latency under `load`; see `ports.Prober`."""
        _check(load)
        if endpoint.info.name == VLLM:
            self._wait_until_idle(endpoint)
        request = ClientRequest(
            base_url=endpoint.base_url,
            model=endpoint.model,
            api_key_env=endpoint.api_key_env,
            vllm=endpoint.info.name == VLLM,
            load=load,
            request_timeout_s=self.request_timeout_s,
            tokenizer=tokenizer_digest(endpoint.tokenizer),
        )
        out = self._run_client(request, endpoint)
        if out is None:
            log.warning("the probe client was killed, repeating load %s on %s", load.name, endpoint.base_url)
            out = self._run_client(request, endpoint)
        if out is None:
            raise _failure(endpoint, "the probe client was killed twice")
        measurement = _measurement(out, endpoint)
        waited = measurement.client_waited_s / max(measurement.duration_s, 1e-9)
        if waited > MAX_WAITED:
            log.warning(
                "the probe client waited %.0f %% of the time for a CPU, so the measured latency is too high: "
                "run the worker as root or with CAP_SYS_NICE, or keep one CPU core free",
                100 * waited,
            )
        return summarize(load, measurement)

    def rest(self) -> None:
        """End the client if nothing was measured for `keep_client_s`: it takes 30 MB, and 1 s to start."""
        if self.client is not None and time.monotonic() - self._used_s >= self.keep_client_s:
            self.close()

    def close(self) -> None:
        """End the client. Calling it twice is harmless; the next probe starts a new one."""
        client, self.client = self.client, None
        if client is not None:
            client.close()

    def _wait_until_idle(self, endpoint: Endpoint) -> None:
        """Wait until the server has finished the requests of others, which would distort the figures."""
        waited_s = 0.0
        while (busy := _in_flight(endpoint)) > 0:
            if waited_s >= self.idle_timeout_s:
                raise ProbeError(
                    f"the server at {endpoint.base_url} is busy: {busy} requests in flight after {waited_s:.0f} s",
                    hint="stop its other clients, or read " + (endpoint.info.log or "its log"),
                )
            Event().wait(IDLE_POLL_S)
            waited_s += IDLE_POLL_S

    def _run_client(self, request: ClientRequest, endpoint: Endpoint) -> bytes | None:
        """Return the reply of the client; None if a signal killed it, which is not the fault of the server."""
        has_replied = False
        try:
            client = self._running_client(endpoint.api_key_env)
            reply = client.ask(REQUEST.dump_json(request), timeout_s=self.timeout_s)
            has_replied = True
        except TimeoutError as error:
            what = f"load {request.load.name} did not finish within {self.timeout_s:g} s"
            raise _failure(endpoint, what) from error
        except ClientEnded as error:
            if error.is_killed:
                return None
            raise _failure(endpoint, str(error)) from error
        finally:
            # Also if a signal ends the worker here: no load may outlive its prober.
            self._used_s = time.monotonic()
            if not has_replied:
                self.close()
        return reply

    def _running_client(self, keep_secret: str) -> ClientProcess:
        if self.client is not None and self.client.keep_secret != keep_secret:
            self.close()
        if self.client is None:
            self.client = ClientProcess(keep_secret=keep_secret)
        return self.client


def tokenizer_digest(folder: str) -> str:
    """Return the hash of the tokenizer's files in a model's folder; empty if there are none or one is unreadable."""
    digest = hashlib.sha256()
    paths = sorted(path for path in Path(folder).glob("*") if _TOKENIZER.match(path.name)) if folder else []
    for path in paths:
        try:
            content = read_bytes(path, limits.SERVED_FILE)
        except (OSError, TooLarge):
            return ""
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    if paths:
        return digest.hexdigest()
    return ""


def requests_in_flight(text: str) -> int:
    """Return the number of running and waiting requests of all engines, from Prometheus text; 0 without the gauges."""
    return round(sum(_value(line) for line in text.splitlines() if _gauge(line) in GAUGES))


def _gauge(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def _value(line: str) -> float:
    try:
        value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
    except (ValueError, IndexError):
        return 0.0
    return value if math.isfinite(value) else 0.0


def _check(load: ProbeLoad) -> None:
    least = min(load.requests, load.concurrency, load.input_tokens, load.output_tokens)
    no_rate = load.request_rate is not None and not 0 < load.request_rate < math.inf
    if least < 1 or load.warmup_requests < 0 or no_rate:
        raise ProbeError(
            f"invalid load {load.name}: {load}",
            hint="set requests, concurrency, input_tokens and output_tokens to at least 1, and request_rate above 0",
        )


def _measurement(out: bytes, endpoint: Endpoint) -> Measurement:
    try:
        reply = REPLY.validate_json(out)
    except ValidationError as error:
        raise _failure(endpoint, f"invalid reply of the probe client: {out[:200]!r}") from error
    if reply.measurement is None:
        raise _failure(endpoint, reply.error)
    return reply.measurement


def _failure(endpoint: Endpoint, what: str) -> ProbeError:
    see = f"see {endpoint.info.log}" if endpoint.info.log else "see the log of that server"
    return ProbeError(f"cannot measure latency of {endpoint.model} at {endpoint.base_url}: {what}", hint=see)


def _in_flight(endpoint: Endpoint) -> int:
    """Return the number of requests in flight on our own server; 0 if it does not report it."""
    parts = urlsplit(endpoint.base_url)
    # Never through a proxy: the engine runs on this machine.
    path = parts.path.rstrip("/").removesuffix("/v1") + "/metrics"
    try:
        status, body = request("GET", (parts.hostname or "", parts.port or 80), path, timeout_s=METRICS_TIMEOUT_S)
    except ERRORS as error:
        log.info("no metrics from %s (%s); measuring latency without checking that it is idle", parts.netloc, error)
        return 0
    if status == HTTPStatus.OK:
        return requests_in_flight(body.decode(errors="replace"))
    return 0
