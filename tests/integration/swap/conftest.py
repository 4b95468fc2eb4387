"""The real vLLM of all tests with weights swapped into it by hand, and the answers of cold starts to compare with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_jobs.types import Canary
from tests.swap_servers import SwapServer
from tests.tiny_model import checkpoint_record, write_checkpoint
from tests.vllm_series import Series

Answers = tuple[Canary, ...]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models; `a` and `b` differ in their weights only."""
    folder = tmp_path_factory.mktemp("swapped")
    write_checkpoint(folder / "a", seed=0)
    write_checkpoint(folder / "b", seed=1)
    return folder


@pytest.fixture(scope="session")
def cold_a(plain: Series) -> Answers:
    """What a server answers that was started on the weights of `a`."""
    assert plain.infos[1].load_method == "cold"
    return plain.infos[1].canaries


@pytest.fixture(scope="session")
def cold_b(plain: Series) -> Answers:
    """What a server answers that was started on the weights of `b`."""
    assert plain.infos[0].load_method == "cold"
    return plain.infos[0].canaries


@pytest.fixture
def on_a(plain: Series, models: Path) -> Iterator[SwapServer]:
    """The server, which holds `a`, as it does again afterwards."""
    with plain.serving(checkpoint_record(models / "a", step=0)) as endpoint:
        resident = plain.resident
        assert resident.model is not None
        port = resident.launch.port
        server = SwapServer(port=port, model=endpoint.model, resident=resident.model, engine=resident.process)
        yield server
        server.swap(models / "a")
