"""A swapped server answers bit by bit as one that was started on the same weights."""

import http.client
import json
import shutil
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from eval_jobs.errors import SwapRefused
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.process.control import post_to_engine
from eval_jobs.serve.resident import swap as swap_module
from tests.integration.swap.conftest import Answers
from tests.swap_servers import SWAP_TIMEOUT_S, SwapServer, layout_digest_of, record_of
from tests.tiny_model import write_sharded_checkpoint

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


PATIENCE_S = 0.2


def test_there_and_back_and_again_equals_cold_starts(
    on_a: SwapServer, cold_a: Answers, cold_b: Answers, models: Path
) -> None:
    assert cold_a != cold_b
    for _ in range(3):
        on_a.swap(models / "b")
        assert on_a.canaries() == cold_b
        on_a.swap(models / "a")
        assert on_a.label() == record_of(models / "a").digest
        assert on_a.canaries() == cold_a


def test_shards_with_an_index_equal_one_file(
    on_a: SwapServer, cold_a: Answers, cold_b: Answers, tmp_path: Path
) -> None:
    on_a.swap(write_sharded_checkpoint(tmp_path / "b", seed=1, shards=3))
    assert on_a.canaries() == cold_b
    on_a.swap(write_sharded_checkpoint(tmp_path / "a", seed=0, shards=3))
    assert on_a.canaries() == cold_a


@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_the_same_path_with_new_content_is_loaded_again(
    how: str, on_a: SwapServer, cold_b: Answers, models: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(models / "a", tmp_path / "latest")
    on_a.swap(folder)
    new = (models / "b" / "model.safetensors").read_bytes()
    if how == "in place":
        (folder / "model.safetensors").write_bytes(new)
    else:
        (folder / "draft").write_bytes(new)
        (folder / "draft").replace(folder / "model.safetensors")
    on_a.swap(folder)
    assert on_a.canaries() == cold_b


def test_prompts_that_the_engine_remembers_from_other_weights_are_forgotten(
    on_a: SwapServer, cold_a: Answers, cold_b: Answers, models: Path
) -> None:
    """Without pause and reset what it remembers of the longest prompt is wrong."""
    assert on_a.canaries() == cold_a
    record, layout = record_of(models / "b"), layout_digest_of(models / "b")
    assert on_a.call("tracker_check", path=record.uri, digest=record.digest, layout=layout).is_ok
    assert on_a.call("tracker_load").is_ok
    stale = on_a.canaries()
    assert stale[:-1] == cold_b[:-1], "these are shorter than a block"
    assert stale[-1] != cold_b[-1], "the canary that shows it"
    on_a.swap(models / "b")
    assert on_a.canaries() == cold_b


def test_a_request_under_way_ends_on_the_weights_that_it_began_with(on_a: SwapServer, models: Path) -> None:
    alone = on_a.long_answer()
    with on_a.under_way() as tokens:
        assert len(tokens) < len(alone)
        on_a.swap(models / "b")
    assert tokens == alone
    assert on_a.long_answer() != alone


def test_a_request_that_comes_in_between_is_answered_by_the_new_weights(on_a: SwapServer, models: Path) -> None:
    on_a.swap(models / "b")
    alone = on_a.long_answer()
    on_a.swap(models / "a")
    answers: list[list[int]] = []
    asking = threading.Thread(target=lambda: answers.append(on_a.long_answer()))
    assert post_to_engine(on_a.port, "/pause?mode=wait", timeout_s=SWAP_TIMEOUT_S).is_ok
    asking.start()
    SystemClock().sleep(0.5)  # a paused engine does not show who waits; a later request is answered alike
    on_a.swap(models / "b")
    asking.join()
    assert answers == [alone]


def test_an_engine_that_does_not_come_to_rest_in_time_serves_what_it_did(on_a: SwapServer, cold_a: Answers) -> None:
    # This process may be kept from asking until the answers are there: then with longer ones.
    assert any("did not pause" in why_not_at_rest(on_a, answers=32 * 2**number) for number in range(5))
    assert not on_a.is_paused()
    assert on_a.canaries() == cold_a
    # With nothing to do it is in time; on a busy machine perhaps not the first time.
    assert not all(why_not_at_rest(on_a, answers=0) for _ in range(5))


@pytest.mark.parametrize("path", ["/collective_rpc", "/pause", "/weight_checker", "/v1/load_lora_adapter"])
def test_other_clients_cannot_change_the_served_weights(path: str, on_a: SwapServer) -> None:
    assert asked_by_a_stranger(on_a, "POST", path) == 403
    assert not on_a.is_paused()


def test_what_answers_prompts_is_open(on_a: SwapServer) -> None:
    assert asked_by_a_stranger(on_a, "GET", "/v1/models") == 200
    assert asked_by_a_stranger(on_a, "GET", "/metrics") == 200
    prompt = {"model": on_a.model, "prompt": "1", "max_tokens": 1}
    assert asked_by_a_stranger(on_a, "POST", "/v1/completions", prompt) == 200


# --- private


def why_not_at_rest(server: SwapServer, *, answers: int) -> str:
    """Return what is said when it is to rest within a moment while it gives so many long answers; "" when it does."""
    with server.under_way(n=answers, temperature=1.0) if answers else nullcontext():
        try:
            swap_module._pause(server.port, PATIENCE_S)
        except SwapRefused as error:
            return error.message
        assert post_to_engine(server.port, "/resume", timeout_s=SWAP_TIMEOUT_S).is_ok
    return ""


def asked_by_a_stranger(server: SwapServer, method: str, path: str, body: object = None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SWAP_TIMEOUT_S)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()
