"""Compiled models with tied embeddings, stored in bfloat16 and served in float32; at last the servers are broken.

All other servers of these tests compute in bfloat16: vLLM does so by itself with weights in float32.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from eval_jobs.errors import CanaryFailed, SwapFailed, SwapRefused
from tests.integration.left_behind import writers
from tests.integration.swap.conftest import Answers
from tests.requires import requires_binary
from tests.swap_models import DOWN, UNFIT, K, store_as_bf16, without, write_one_layer, write_tied
from tests.swap_servers import SwapServer, swap_server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]


@dataclass(frozen=True, kw_only=True)
class Tied:
    """A compiled server and what it was started on."""

    server: SwapServer
    folder: Path
    cold: Answers


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tied, Tied]]:
    requires_binary("g++")
    folder = tmp_path_factory.mktemp("tied")
    names = [store_as_bf16(write_tied(folder / name, seed=seed)) for seed, name in enumerate(("ta", "tb"))]
    model = folder / "model"  # one path for both: to vLLM it is a part of what it has compiled
    with ExitStack() as stack:
        servers = []
        for name in names:
            model.unlink(missing_ok=True)
            model.symlink_to(name)
            server = swap_server(folder, model, "--dtype", "float32", is_compiled=True)
            servers.append(stack.enter_context(server))
        one, two = servers
        yield (
            Tied(server=one, folder=names[0], cold=one.canaries()),
            Tied(server=two, folder=names[1], cold=two.canaries()),
        )


@pytest.mark.parametrize("first", [0, 1])
def test_compiled_tied_and_widened_weights_equal_a_cold_start_there_and_back(
    first: int, pair: tuple[Tied, Tied]
) -> None:
    own, other = pair[first], pair[1 - first]
    assert own.cold != other.cold
    for _ in range(2):
        own.server.swap(other.folder)
        assert own.server.canaries() == other.cold
        own.server.swap(own.folder)
        assert own.server.canaries() == own.cold


def test_vllm_alone_keeps_the_old_output_layer(pair: tuple[Tied, Tied]) -> None:
    own, other = pair
    assert own.server.plain_reload(other.folder).is_ok
    wrong = own.server.canaries()
    assert wrong != other.cold
    assert wrong != own.cold
    own.server.swap(other.folder)
    assert own.server.canaries() == other.cold
    own.server.swap(own.folder)


def test_an_output_layer_of_its_own_does_not_go_into_a_tied_model(pair: tuple[Tied, Tied], tmp_path: Path) -> None:
    untied = store_as_bf16(write_one_layer(tmp_path / "untied", seed=1))
    with pytest.raises(SwapRefused, match=r"the tensor lm_head\.weight is BF16 .*, was missing"):
        pair[0].server.swap(untied)
    assert pair[0].server.canaries() == pair[0].cold
    assert pair[0].server.plain_reload(untied).is_ok, "vLLM alone says that it did it"
    assert pair[0].server.canaries_or_none() not in (pair[0].cold, pair[1].cold)
    pair[0].server.swap(pair[0].folder)


@pytest.mark.parametrize("name", [DOWN, K])
def test_vllm_alone_takes_weights_with_a_missing_tensor_for_whole(
    name: str, pair: tuple[Tied, Tied], tmp_path: Path
) -> None:
    """Like those below: nothing mends the server, as what was computed from NaN may stay in its cache."""
    own, other = pair
    unfit = store_as_bf16(without(name)(write_tied(tmp_path / "unfit", seed=1)))
    assert own.server.plain_reload(own.folder).is_ok  # what is missing may be left from before: not from the same ones
    assert own.server.plain_reload(unfit).is_ok
    assert own.server.canaries_or_none() not in (own.cold, other.cold)


def test_answers_that_are_no_numbers_are_an_error_of_the_canaries(pair: tuple[Tied, Tied], tmp_path: Path) -> None:
    unfit = write_tied(tmp_path / "unfit", seed=1)
    UNFIT["NaN"][0](unfit)
    assert pair[0].server.plain_reload(store_as_bf16(unfit)).is_ok
    with pytest.raises(CanaryFailed, match="a token probability is NaN or Inf"):
        pair[0].server.canaries()


def test_after_a_reload_that_vllm_alone_refuses_the_engine_is_dead(pair: tuple[Tied, Tied], tmp_path: Path) -> None:
    server = pair[0].server
    unfit = write_one_layer(tmp_path / "unfit", seed=1)
    UNFIT["another hidden size"][0](unfit)
    assert server.plain_reload(store_as_bf16(unfit)).status == 500
    with pytest.raises(CanaryFailed):
        server.canaries()
    with pytest.raises(SwapFailed):
        server.swap(pair[0].folder)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_an_engine_whose_worker_hangs_or_is_gone_has_failed(
    number: signal.Signals, pair: tuple[Tied, Tied], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs after all others of this server."""
    monkeypatch.setattr("tests.swap_servers.SWAP_TIMEOUT_S", 2.0)
    server = pair[1].server
    (worker,) = (pid for pid in writers(server.engine.log) if "Worker" in Path(f"/proc/{pid}/comm").read_text())
    os.kill(worker, number)
    with pytest.raises(SwapFailed, match=r"check the weights|label its weights"):
        server.swap(pair[1].folder)
