"""An endpoint that somebody else runs."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import pytest

from eval_jobs.errors import ConfigError, EndpointUnreachable, WrongModel
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve import remote
from eval_jobs.serve.process.port import choose_port
from eval_jobs.serve.remote import RemoteEngine, checked_base_url, chosen_model, model_name
from eval_jobs.types import Endpoint, EngineKind, ServeSpec
from tests.contract.engine_rules import nothing_to_show
from tests.fakes.openai_server import OpenAIServer, Reply
from tests.fakes.raw_server import RawServer, whole
from tests.tiny_model import checkpoint_record, write_checkpoint

VARIABLE = "TEST_REMOTE_ENGINE_KEY"
CHECKPOINT = checkpoint_record(Path("/pins/run7/400"), step=400, run_id="run7")


def serve(base_url: str, *, model: str = "", api_key_env: str = "") -> Endpoint:
    spec = ServeSpec(engine=EngineKind.REMOTE, base_url=base_url, model=model, api_key_env=api_key_env)
    with RemoteEngine(SystemClock()).serving(CHECKPOINT, spec, progress=nothing_to_show) as endpoint:
        return endpoint


@contextmanager
def key_in_environment(value: str) -> Iterator[None]:
    os.environ[VARIABLE] = value
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def test_step_and_run_are_replaced_in_the_models_name() -> None:
    assert model_name("{run}/step-{step}", CHECKPOINT) == "run7/step-400"
    with OpenAIServer(model="run7-400") as server:
        assert serve(server.base_url, model="{run}-{step}").model == "run7-400"


def test_without_a_name_the_only_model_is_taken() -> None:
    with OpenAIServer(model="the-one") as server:
        endpoint = serve(server.base_url + "/")
    assert endpoint.model == "the-one"
    assert endpoint.base_url == server.base_url
    assert endpoint.info.load_method == "remote"


def test_without_a_name_and_with_several_models_the_choice_is_left_to_the_user() -> None:
    with pytest.raises(WrongModel, match=r"2 models: a, b.*serve\.model"):
        chosen_model("", ("a", "b"), url="http://host/v1")
    with pytest.raises(WrongModel, match="0 models: none"):
        chosen_model("", (), url="http://host/v1")


def test_a_model_that_is_not_there_is_answered_with_what_is() -> None:
    with OpenAIServer(model="run7-300") as server, pytest.raises(WrongModel, match=r"run7-400 \(available: run7-300\)"):
        serve(server.base_url, model="run7-{step}")


def test_a_key_comes_from_the_environment_and_never_enters_the_endpoint() -> None:
    with OpenAIServer(model="tiny", api_key="s3cret") as server, key_in_environment("s3cret"):
        endpoint = serve(server.base_url, api_key_env=VARIABLE)
    assert endpoint.api_key_env == VARIABLE
    assert "s3cret" not in repr(endpoint)


def test_a_variable_that_is_named_and_not_set_is_an_error_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match=f"{VARIABLE}.*not set"):
        serve("http://127.0.0.1:1/v1", api_key_env=VARIABLE)


def test_a_refused_key_names_its_variable_and_not_its_value() -> None:
    with (
        OpenAIServer(model="tiny", api_key="right") as server,
        key_in_environment("wr0ng"),
        pytest.raises(ConfigError, match=rf"rejects the API key in {VARIABLE} \(HTTP 401\)") as caught,
    ):
        serve(server.base_url, api_key_env=VARIABLE)
    assert "wr0ng" not in str(caught.value)


def test_a_missing_key_is_said_to_be_missing() -> None:
    with (
        OpenAIServer(model="tiny", api_key="right") as server,
        pytest.raises(ConfigError, match=r"rejects requests without an API key.*serve\.api_key_env"),
    ):
        serve(server.base_url)


@pytest.mark.slow
def test_nobody_at_the_address_is_unreachable_and_may_be_tried_again() -> None:
    with pytest.raises(EndpointUnreachable, match=r"no response from .*refused") as caught:
        serve(f"http://127.0.0.1:{choose_port(0)}/v1")
    assert caught.value.retryable
    with pytest.raises(EndpointUnreachable, match=r"no-such-host\.invalid"):
        serve("http://no-such-host.invalid/v1")


def test_a_url_without_v1_is_told_apart_from_a_dead_server() -> None:
    with OpenAIServer(model="tiny") as server, pytest.raises(WrongModel, match="ends in /v1"):
        serve(server.base_url.removesuffix("/v1"))


def test_a_broken_server_is_unreachable_with_its_status() -> None:
    with (
        OpenAIServer(models=Reply(status=503, text="loading")) as server,
        pytest.raises(EndpointUnreachable, match="HTTP 503"),
    ):
        serve(server.base_url)


def test_a_server_that_speaks_no_http_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_speak_ssh, args=(listener,), daemon=True).start()
        with pytest.raises(EndpointUnreachable, match="no response from"):
            serve(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")


def test_a_list_of_models_without_an_end_or_of_a_byte_now_and_then_is_no_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "LOOK_TIMEOUT_S", 0.2)
    spec = ServeSpec(engine=EngineKind.REMOTE, base_url="")
    start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    slow = "timed out|not complete in time"
    for part, pause_s, reason in ((b" " * 100_000, 0.0, "exceeds 4194304 bytes"), (b" ", 0.05, slow)):
        with (
            RawServer(partial(chain, [start], repeat(part)), pause_s=pause_s) as server,
            pytest.raises(EndpointUnreachable, match=reason),
        ):
            remote.served_model(CHECKPOINT, replace(spec, base_url=server.base_url), is_look=True)


def test_a_list_of_models_at_another_host_is_not_asked_for_and_both_hosts_are_named() -> None:
    with OpenAIServer(model="tiny") as other:
        moved = f"HTTP/1.1 308 Moved\r\nLocation: {other.base_url}/models\r\nContent-Length: 0\r\n\r\n"
        with (
            RawServer(lambda: [moved.encode()]) as server,
            pytest.raises(EndpointUnreachable, match=rf":{server.port} redirects to another host, .*:{other.port}"),
        ):
            serve(server.base_url)


def test_what_is_no_list_of_models_is_said_to_be_none() -> None:
    for body in (b"", b"[" * 100_000, b"null", b'{"data": 5}', b'{"data": [{"id": "\\ud83d"}, 7]}'):
        with RawServer(partial(whole, body)) as server, pytest.raises(WrongModel) as caught:
            serve(server.base_url, model="tiny")
        assert caught.value.message.encode()


def test_what_is_no_url_or_holds_a_secret_is_refused_and_not_repeated() -> None:
    for url in ("", "host:8000/v1", "ftp://host/v1", "http://", "http://host:port/v1", "http://[::1/v1"):
        with pytest.raises(ConfigError, match=r"serve\.base_url"):
            checked_base_url(url)
    for url in ("https://user:s3cret@host/v1", "https://host/v1?api_key=s3cret"):
        with pytest.raises(ConfigError, match=r"serve\.api_key_env") as caught:
            checked_base_url(url)
        assert "s3cret" not in str(caught.value)


def test_the_tokenizer_of_the_pinned_checkpoint_is_known_where_the_pin_is(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    with OpenAIServer(model="tiny") as server:
        spec = ServeSpec(engine=EngineKind.REMOTE, base_url=server.base_url)
        with RemoteEngine(SystemClock()).serving(checkpoint_record(folder), spec, progress=nothing_to_show) as here:
            assert here.tokenizer == str(folder)
        assert serve(server.base_url).tokenizer == ""


# --- private


def _speak_ssh(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                connection.recv(1000)
