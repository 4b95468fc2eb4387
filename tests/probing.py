"""What tests of the probe ask, and whom."""

from eval_jobs.types import Endpoint, EngineInfo, ProbeLoad
from tests.fakes.openai_server import Answer, OpenAIServer, Reply

TOKENS = tuple("abcdefgh")
LOAD = ProbeLoad(requests=6, concurrency=2, input_tokens=16, output_tokens=len(TOKENS), warmup_requests=2)
CALIBRATION = 2
"""Requests that the real prober sends before the warm-up."""
GOOD = Reply(tokens=TOKENS, finish_reason="length", prompt_tokens=16)


def endpoint_of(server: OpenAIServer, *, engine: str = "remote", api_key_env: str = "") -> Endpoint:
    info = EngineInfo(name=engine, version="", load_method="remote", load_s=0.0, log="/var/log/engine.log")
    return Endpoint(base_url=server.base_url, model=server.model, api_key_env=api_key_env, info=info)


def bad_from(first_bad: int, bad: Reply) -> Answer:
    """Answer well, then badly from request number `first_bad` of the load on."""
    return lambda request: GOOD if request.number < CALIBRATION + LOAD.warmup_requests + first_bad else bad
