"""Weights in int8 are started cold, each time and with the reason; and what vLLM alone would have made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eval_jobs.errors import CanaryFailed, SwapRefused
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.control import EngineReply, post_to_engine
from eval_jobs.serve.resident.canary import ask_canaries
from eval_jobs.serve.resident.certificate import every_proof
from eval_jobs.serve.resident.swap import swap
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.serve.weights.fingerprint import fingerprint_of
from eval_jobs.types import Endpoint, EngineInfo, ServeSpec
from tests.contract.engine_rules import check_endpoint, nothing_to_show
from tests.integration.swap.conftest import Answers
from tests.swap_models import write_quantised
from tests.swap_servers import MAX_MODEL_LEN, SWAP_TIMEOUT_S, record_of
from tests.tiny_model import VOCABULARY, write_checkpoint

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]


@dataclass(frozen=True, kw_only=True)
class Quantised:
    """Two checkpoints in int8 that one engine of ours served one after the other; it still serves the second."""

    folders: tuple[Path, Path]
    work_dir: Path
    infos: list[EngineInfo] = field(default_factory=list)
    endpoints: list[Endpoint] = field(default_factory=list)

    @property
    def port(self) -> int:
        return urlsplit(self.endpoints[-1].base_url).port or 0

    def answers(self) -> Answers | None:
        """Return what is answered now, None where that is no numbers."""
        try:
            return ask_canaries(self.port, self.endpoints[-1].model, vocab_size=len(VOCABULARY))
        except CanaryFailed:
            return None

    def plain_reload(self, folder: Path) -> EngineReply:
        """Reload as vLLM itself offers it, between a pause and a resume."""
        post_to_engine(self.port, "/pause?mode=wait", timeout_s=SWAP_TIMEOUT_S)
        arguments = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        reply = post_to_engine(self.port, "/collective_rpc", arguments, timeout_s=SWAP_TIMEOUT_S)
        post_to_engine(self.port, "/resume", timeout_s=SWAP_TIMEOUT_S)
        return reply


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quantised]:
    folder = tmp_path_factory.mktemp("quantised")
    first, second = (write_quantised(folder / name, seed=seed) for seed, name in enumerate(("qa", "qb")))
    found = Quantised(folders=(first, second), work_dir=folder / "work")
    engine = VllmEngine(found.work_dir, SystemClock())
    spec = ServeSpec(max_model_len=MAX_MODEL_LEN)
    try:
        with engine.serving(record_of(first), spec, progress=nothing_to_show) as endpoint:
            found.infos.append(endpoint.info)
        with engine.serving(record_of(second), spec, progress=nothing_to_show) as endpoint:
            check_endpoint(endpoint)
            found.infos.append(endpoint.info)
            found.endpoints.append(endpoint)
            yield found
    finally:
        engine.close()


def test_every_quantised_checkpoint_is_a_new_start_and_its_record_says_why(quantised: Quantised) -> None:
    first, second = quantised.infos
    assert [info.load_method for info in quantised.infos] == ["cold", "cold"]
    assert second.load_reason == "its weights are never swapped: it is quantised (compressed-tensors)"
    assert first.log != second.log
    assert first.canaries
    assert second.canaries
    assert first.canaries != second.canaries
    assert not list(every_proof(quantised.work_dir / "certificates")), "nothing was tried"


def test_weights_that_are_not_quantised_are_refused_by_an_engine_that_was_started_on_quantised_ones(
    quantised: Quantised, tmp_path: Path
) -> None:
    whole = record_of(write_checkpoint(tmp_path / "whole", seed=0))
    with pytest.raises(SwapRefused, match=r"the tensor .*_proj\.weight is F32 .* and was I8"):
        swap(quantised.port, whole, fingerprint_of(quantised.folders[1]), timeout_s=SWAP_TIMEOUT_S)
    assert quantised.answers() == quantised.infos[1].canaries


def test_vllm_alone_says_that_it_loaded_them_and_answers_as_neither(quantised: Quantised, tmp_path: Path) -> None:
    """Runs after all others of this server: nothing mends it."""
    whole = write_checkpoint(tmp_path / "whole", seed=0)
    cold = tuple(info.canaries for info in quantised.infos)
    for folder in (quantised.folders[0], quantised.folders[1], whole):
        assert quantised.plain_reload(folder).is_ok
        assert quantised.answers() not in cold
