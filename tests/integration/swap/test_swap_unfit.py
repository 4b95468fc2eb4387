"""What must not be swapped in is refused before the model is touched; and what vLLM alone would have done with it."""

from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import SwapRefused
from eval_jobs.serve.process.control import post_to_engine
from tests.integration.swap.conftest import Answers
from tests.swap_models import UNFIT, edit_json
from tests.swap_servers import SWAP_TIMEOUT_S, SwapServer, layout_digest_of, record_of
from tests.tiny_model import write_checkpoint

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]

SEEN_BY_WORKER = (
    *("down_proj missing", "k_proj missing", "NaN", "another hidden size", "one layer more", "one tensor more"),
    *("truncated", "no weights", "nothing there", "tied", "stored in bfloat16"),
)


@pytest.fixture
def unfit(tmp_path: Path) -> Path:
    """The weights of `b`, to be spoilt."""
    return write_checkpoint(tmp_path / "unfit", seed=1)


@pytest.mark.parametrize("what", UNFIT)
def test_a_checkpoint_that_does_not_fit_is_refused_and_the_engine_serves_what_it_did(
    what: str, on_a: SwapServer, cold_a: Answers, unfit: Path
) -> None:
    spoil, words = UNFIT[what]
    label = on_a.label()
    record = record_of(unfit)
    spoil(unfit)
    with pytest.raises(SwapRefused, match=words):
        on_a.swap_record(record)
    assert on_a.canaries() == cold_a
    assert on_a.label() == label
    assert not on_a.is_paused()


@pytest.mark.parametrize("what", SEEN_BY_WORKER)
def test_the_worker_process_of_the_engine_rejects_unfit_weights_too(
    what: str, on_a: SwapServer, cold_a: Answers, unfit: Path
) -> None:
    layout, digest = layout_digest_of(unfit), record_of(unfit).digest
    UNFIT[what][0](unfit)
    reply = on_a.call("tracker_check", path=str(unfit), digest=digest, layout=layout)
    assert isinstance(reply.body, dict)
    assert reply.body["results"][0]["refused"]
    assert on_a.canaries() == cold_a


def test_other_weights_than_those_that_were_pinned_are_refused(on_a: SwapServer, cold_a: Answers, unfit: Path) -> None:
    with pytest.raises(SwapRefused, match="changed: SHA-256 is"):
        on_a.swap_record(replace(record_of(unfit), digest="0" * 64))
    assert on_a.canaries() == cold_a


def test_vllm_alone_serves_another_rope_theta_with_the_old_one(on_a: SwapServer, cold_b: Answers, unfit: Path) -> None:
    edit_json(unfit, "config.json", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    assert on_a.plain_reload(unfit).is_ok
    assert on_a.canaries() == cold_b


def test_vllm_alone_serves_another_chat_template_with_the_old_one(on_a: SwapServer, unfit: Path) -> None:
    before = chat_prompt(on_a)
    UNFIT["another chat template"][0](unfit)
    assert on_a.plain_reload(unfit).is_ok
    assert chat_prompt(on_a) == before


# --- private


def chat_prompt(server: SwapServer) -> list[int]:
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": "1"}],
        "max_tokens": 1,
        "return_token_ids": True,
    }
    reply = post_to_engine(server.port, "/v1/chat/completions", body, timeout_s=SWAP_TIMEOUT_S)
    assert isinstance(reply.body, dict), reply.text
    tokens: list[int] = reply.body["prompt_token_ids"]
    return tokens
