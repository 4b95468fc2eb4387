"""The rules of `Engine.serving`, as one function for every adapter."""

import socket

import openai

from eval_jobs.ports import Engine
from eval_jobs.types import Checkpoint, Endpoint, ServeSpec

LOAD_METHODS = {"cold", "swap", "adapter", "remote"}


def check_service(engine: Engine, checkpoint: Checkpoint, spec: ServeSpec) -> None:
    """Serve `checkpoint` once and look at everything that the port promises."""
    lines: list[str] = []
    with engine.serving(checkpoint, spec, progress=lines.append) as endpoint:
        check_endpoint(endpoint)
    assert lines, "every start is shown"
    assert all(line == line.strip() and "\n" not in line for line in lines)


def check_endpoint(endpoint: Endpoint) -> None:
    """Check an endpoint that is being served now."""
    assert endpoint.base_url.startswith("http")
    assert endpoint.base_url.endswith("/v1")
    assert endpoint.model in offered_models(endpoint)
    assert endpoint.info.name
    assert endpoint.info.load_method in LOAD_METHODS
    assert endpoint.info.load_s >= 0
    assert endpoint.info.machine, "latencies of different machines are never compared"
    assert socket.gethostname() not in endpoint.info.machine, "whose machine it is is nobody's business"


def offered_models(endpoint: Endpoint) -> list[str]:
    """Return what the endpoint lists."""
    with openai.OpenAI(base_url=endpoint.base_url, api_key="none", max_retries=0) as client:
        return [model.id for model in client.models.list()]


def nothing_to_show(line: str) -> None:
    """Take a progress line."""
