"""What an engine that says nothing does to whoever loads an adapter, lets it sleep or wakes it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.errors import SwapFailed, SwapRefused
from eval_jobs.serve.resident import sleeping
from eval_jobs.serve.resident.order import is_without_effect
from eval_jobs.serve.resident.warm import load_adapter, unload_adapter


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_an_adapter_of_which_nothing_is_heard_makes_the_engine_a_dead_one(silent: int, closed: int) -> None:
    for port in (silent, closed):
        with pytest.raises(SwapFailed, match="did not confirm loading an adapter: no response"):
            load_adapter(port, "a", "/adapter", timeout_s=0.2)


def test_an_adapter_that_is_not_let_go_of_is_said(closed: int) -> None:
    with pytest.raises(SwapRefused, match="cannot unload"):
        unload_adapter(closed, "a")


@pytest.mark.parametrize("tag", ["", "weights", "kv_cache"])
def test_an_engine_that_does_not_say_that_it_woke_up_counts_as_dead(tag: str, closed: int) -> None:
    with pytest.raises(SwapFailed, match="cannot wake the engine: no response"):
        sleeping.wake(closed, tag)


def test_an_engine_that_does_not_say_that_it_sleeps_counts_as_dead(closed: int) -> None:
    with pytest.raises(SwapFailed, match="cannot put the engine to sleep: no response"):
        sleeping.fall_asleep(closed, sleeping.DROP_WEIGHTS)


def test_an_adapter_that_cannot_be_read_has_no_known_effect(tmp_path: Path) -> None:
    assert is_without_effect(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"nothing")
    assert is_without_effect(tmp_path)
