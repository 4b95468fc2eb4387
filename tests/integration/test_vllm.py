"""The real vLLM: the port's rules, where it listens, and a start that fails."""

from pathlib import Path

import psutil
import pytest

from eval_jobs.errors import ServerDied
from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Endpoint, ServeSpec
from tests.contract.engine_rules import check_endpoint, nothing_to_show, offered_models
from tests.integration.left_behind import writers
from tests.tiny_model import checkpoint_record, write_checkpoint
from tests.vllm_series import Series

pytestmark = pytest.mark.vllm


def test_the_rules_of_the_port_hold_for_the_real_vllm(plain: Series, served: Endpoint) -> None:
    check_endpoint(served)
    assert offered_models(served) == [served.model]
    assert served.info.version.startswith("0.32")
    assert plain.infos[0].load_method == "cold"
    assert plain.infos[0].load_s > 1
    assert Path(served.tokenizer, "tokenizer.json").is_file()


def test_no_process_of_the_engine_listens_beyond_this_machine(served: Endpoint) -> None:
    engine = writers(served.info.log)
    listening = {
        connection.laddr.ip
        for pid in engine
        for connection in psutil.Process(pid).net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_a_broken_config_ends_the_start_with_the_name_of_the_file(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint")
    (folder / "config.json").write_text('{"architectures": ["Llama')
    engine = VllmEngine(tmp_path / "work", SystemClock())
    with (
        pytest.raises(ServerDied, match=r"config\.json' is not a valid JSON file") as caught,
        engine.serving(checkpoint_record(folder), ServeSpec(), progress=nothing_to_show),
    ):
        pytest.fail("it must not be served")
    assert str(tmp_path / "work" / "engines") in caught.value.hint
