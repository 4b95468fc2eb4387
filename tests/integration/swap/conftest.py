"""One real vLLM that weights are swapped into, and the answers of cold ones to compare it with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.types import Canary, Endpoint
from tests.swap_servers import SwapServer, swap_server
from tests.tiny_model import VOCABULARY, write_checkpoint

Answers = tuple[Canary, ...]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models; `a` and `b` differ in their weights only."""
    folder = tmp_path_factory.mktemp("swapped")
    write_checkpoint(folder / "a", seed=0)
    write_checkpoint(folder / "b", seed=1)
    return folder


@pytest.fixture(scope="session")
def cold_a(served: Endpoint) -> Answers:
    """What a server answers that was started on the weights of `a` and is never swapped."""
    return ask_canaries(urlsplit(served.base_url).port or 0, served.model, vocab_size=len(VOCABULARY))


@pytest.fixture(scope="session")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwapServer]:
    """Started on `b`."""
    with swap_server(tmp_path_factory.mktemp("swap-server"), models / "b") as started:
        yield started


@pytest.fixture(scope="session")
def cold_b(server: SwapServer) -> Answers:
    """What `server` answered before anything was swapped."""
    return server.canaries()


@pytest.fixture
def on_a(server: SwapServer, cold_b: Answers, models: Path) -> SwapServer:  # noqa: ARG001 - asked before any swap
    """The same server, which holds `a` now."""
    server.swap(models / "a")
    return server
