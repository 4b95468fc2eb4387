"""The server that all integration tests share."""

from __future__ import annotations

import json
import urllib.request

import pytest

from eval_jobs.types import Endpoint


@pytest.mark.vllm
def test_the_shared_server_is_a_real_vllm_and_lists_its_random_name(served: Endpoint) -> None:
    with urllib.request.urlopen(f"{served.base_url}/models", timeout=10) as answer:  # noqa: S310
        body = json.load(answer)
    assert [entry["id"] for entry in body["data"]] == [served.model]
    assert served.info.version.startswith("0.32")
    assert served.info.load_method == "cold"
    assert served.info.load_s > 1
