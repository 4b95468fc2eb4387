"""Latency of an endpoint under a fixed load, measured by a client process of its own (client.py).

result = LatencyProber().probe(endpoint, ProbeLoad(requests=32, concurrency=4))
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from threading import Event
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import ValidationError

from eval_jobs.errors import ProbeError
from eval_jobs.probe.latency import Measurement, summarize
from eval_jobs.probe.metrics import requests_in_flight
from eval_jobs.probe.wire import REPLY, REQUEST, ClientRequest
from eval_jobs.secrets import without_secrets
from eval_jobs.types import Endpoint, ProbeLoad, ProbeResult

log = logging.getLogger(__name__)

VLLM = "vllm"
"""`EngineInfo.name` of an engine whose own routes we know: /metrics, /tokenize."""
MAX_WAITED = 0.1
"""Share of the time that the client may wait for a CPU before that is worth a warning."""
IDLE_POLL_S = 0.1
METRICS_TIMEOUT_S = 5.0


class LatencyProber:
    """`eval_jobs.ports.Prober`; keeps nothing between two calls."""

    def __init__(
        self, *, timeout_s: float = 900.0, request_timeout_s: float = 120.0, idle_timeout_s: float = 30.0
    ) -> None:
        """Set the limits.

        Args:
            timeout_s: for one whole load, warm-up included.
            request_timeout_s: for one answer; a slower one counts as failed.
            idle_timeout_s: how long a server may be busy with something else before the probe is given up.
        """
        self._timeout_s = timeout_s
        self._request_timeout_s = request_timeout_s
        self._idle_timeout_s = idle_timeout_s

    def probe(self, endpoint: Endpoint, load: ProbeLoad) -> ProbeResult:
        """Time `load`; see `ports.Prober`."""
        _check(load)
        if endpoint.info.name == VLLM:
            self._wait_until_idle(endpoint)
        request = ClientRequest(
            base_url=endpoint.base_url,
            model=endpoint.model,
            api_key_env=endpoint.api_key_env,
            vllm=endpoint.info.name == VLLM,
            load=load,
            request_timeout_s=self._request_timeout_s,
        )
        out = self._run_client(request, endpoint)
        if out is None:
            log.warning("the probe's client was killed; the load %s is put on %s again", load.name, endpoint.base_url)
            out = self._run_client(request, endpoint)
        if out is None:
            raise _failure(endpoint, "the probe's client was killed twice")
        measurement = _measurement(out, endpoint)
        waited = measurement.client_waited_s / max(measurement.duration_s, 1e-9)
        if waited > MAX_WAITED:
            log.warning(
                "the probe's client waited %.0f %% of the time for a CPU, so latency reads too high: "
                "run the worker as root or with CAP_SYS_NICE, or leave a core free",
                100 * waited,
            )
        return summarize(load, measurement)

    # --- private

    def _wait_until_idle(self, endpoint: Endpoint) -> None:
        """Wait for the server to finish what others asked: their requests would be in our figures."""
        waited_s = 0.0
        while (busy := _in_flight(endpoint)) > 0:
            if waited_s >= self._idle_timeout_s:
                raise ProbeError(
                    f"the server at {endpoint.base_url} is busy: {busy} requests in flight for {waited_s:.0f} s",
                    hint="stop whatever else uses it, or see " + (endpoint.info.log or "its log"),
                )
            Event().wait(IDLE_POLL_S)
            waited_s += IDLE_POLL_S

    def _run_client(self, request: ClientRequest, endpoint: Endpoint) -> bytes | None:
        """Return what the client wrote; None when somebody killed it, which says nothing about the server."""
        command = [sys.executable, "-P", "-m", "eval_jobs.probe.client"]  # -P: see nothing of the current folder
        pipe = subprocess.PIPE
        env = without_secrets(os.environ, keep=(endpoint.api_key_env,))
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as process:
            try:
                out, err = process.communicate(REQUEST.dump_json(request), timeout=self._timeout_s)
            except subprocess.TimeoutExpired as error:
                what = f"the load {request.load.name} did not end within {self._timeout_s:g} s"
                raise _failure(endpoint, what) from error
            finally:
                # Also when a signal ends the worker in here: no load may outlive its prober.
                process.kill()
        if process.returncode < 0:
            return None
        if process.returncode != 0:
            words = err.decode(errors="replace").strip().splitlines() or ["it wrote nothing"]
            raise _failure(endpoint, f"the probe's client ended with exit code {process.returncode}: {words[-1]}")
        return out


# --- private


def _check(load: ProbeLoad) -> None:
    least = min(load.requests, load.concurrency, load.input_tokens, load.output_tokens)
    if least < 1 or load.warmup_requests < 0:
        raise ProbeError(
            f"the load {load.name} asks for nothing: {load}",
            hint="requests, concurrency, input_tokens and output_tokens must be at least 1",
        )


def _measurement(out: bytes, endpoint: Endpoint) -> Measurement:
    try:
        reply = REPLY.validate_json(out)
    except ValidationError as error:
        raise _failure(endpoint, f"the probe's client wrote no reply: {out[:200]!r}") from error
    if reply.measurement is None:
        raise _failure(endpoint, reply.error)
    return reply.measurement


def _failure(endpoint: Endpoint, what: str) -> ProbeError:
    see = f"see {endpoint.info.log}" if endpoint.info.log else "see the log of that server"
    return ProbeError(f"latency of {endpoint.model} at {endpoint.base_url} was not measured: {what}", hint=see)


def _in_flight(endpoint: Endpoint) -> int:
    """Return the requests that the server works on; 0 when it does not say."""
    parts = urlsplit(endpoint.base_url)
    url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/").removesuffix("/v1") + "/metrics", "", ""))
    try:
        # Never through a proxy: the engine runs on this machine.
        answer = httpx.get(url, timeout=METRICS_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        log.info("%s does not answer (%s); the probe starts without knowing whether the server is idle", url, error)
        return 0
    return requests_in_flight(answer.text) if answer.status_code == 200 else 0
