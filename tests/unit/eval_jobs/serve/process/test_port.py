"""Ports and who answers there."""

import socket
from collections.abc import Iterator

import pytest

from eval_jobs.errors import ConfigError, PortTaken
from eval_jobs.serve.process.control import ask, served_model_names
from eval_jobs.serve.process.port import PORTS, choose_port
from tests.fakes.openai_server import OpenAIServer, Reply


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_free_port_is_picked_below_those_of_outgoing_connections() -> None:
    port = choose_port(0)
    assert port in PORTS
    assert choose_port(port) == port


def test_a_taken_port_is_named_with_a_way_to_find_its_owner(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(PortTaken, match=f"port {port} .*ss -ltnp"):
        choose_port(port)


def test_a_port_that_is_shared_by_others_is_taken_too() -> None:
    with socket.socket() as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(("127.0.0.1", 0))
        shared.listen()
        with pytest.raises(PortTaken):
            choose_port(shared.getsockname()[1])


def test_a_number_that_is_no_port_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"70000: .*serve\.port"):
        choose_port(70_000)


def test_an_answer_is_read_past_any_proxy() -> None:
    with OpenAIServer(model="tiny") as server:
        answer = ask(server.port, "/v1/models")
    assert answer is not None
    assert answer.status == 200
    assert served_model_names(answer.body) == ("tiny",)


def test_an_error_answer_is_an_answer() -> None:
    with OpenAIServer(models=Reply(status=500, text="broken")) as server:
        answer = ask(server.port, "/v1/models")
    assert answer is not None
    assert answer.status == 500


def test_where_nobody_listens_there_is_no_answer() -> None:
    assert ask(choose_port(0), "/v1/models") is None


@pytest.mark.parametrize("body", [None, [], "x", {}, {"data": None}, {"data": {}}, {"data": ["x", {"name": "y"}]}])
def test_anything_but_a_list_of_models_names_none(body: object) -> None:
    assert served_model_names(body) == ()
