from pathlib import Path

import pytest

from eval_jobs.errors import StoreError
from eval_jobs.evaluate.common.child_process import ChildProcess, child_environment

WORK = Path("/state/evaluations")


def test_caches_lie_below_the_work_folder_and_what_the_user_set_stands() -> None:
    environment = child_environment({"HF_HOME": "/models/hf", "PATH": "/bin"}, WORK, offline=True)
    assert environment["HF_HOME"] == "/models/hf"
    assert environment["PATH"] == "/bin"
    for name in ("HF_DATASETS_CACHE", "MODELSCOPE_CACHE", "NLTK_DATA", "XDG_CACHE_HOME"):
        assert environment[name].startswith("/state/evaluations/cache/")


def test_the_child_uses_no_hub_no_gpu_and_nothing_from_where_the_user_stands() -> None:
    environment = child_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, WORK, offline=True)
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["PYTHONSAFEPATH"] == "1"


def test_the_hub_may_be_asked_where_there_is_no_local_data() -> None:
    assert "HF_HUB_OFFLINE" not in child_environment({}, WORK, offline=False)


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("value", ["0", "1"])
def test_what_the_user_says_about_the_hub_stands(value: str, offline: bool) -> None:  # noqa: FBT001
    assert child_environment({"HF_HUB_OFFLINE": value}, WORK, offline=offline)["HF_HUB_OFFLINE"] == value


@pytest.mark.parametrize(
    ("given", "expected"), [({}, ""), ({"NO_PROXY": "x.org"}, "x.org,"), ({"no_proxy": "y"}, "y,")]
)
def test_a_server_on_this_machine_is_never_asked_through_a_proxy(given: dict[str, str], expected: str) -> None:
    environment = child_environment({"HTTP_PROXY": "http://proxy:3128"} | given, WORK, offline=True)
    assert environment["NO_PROXY"] == environment["no_proxy"] == f"{expected}127.0.0.1,localhost,::1"


def test_a_variable_that_breaks_evalscope_is_taken_away() -> None:
    assert "TQDM_DISABLE" not in child_environment({"TQDM_DISABLE": "1"}, WORK, offline=True)


def test_the_child_knows_the_key_of_its_endpoint_and_no_other() -> None:
    keys = {"GATEWAY_KEY": "a", "OTHER_KEY": "b", "PGPASSWORD": "c", "HF_TOKEN": "d"}
    environment = child_environment(keys, WORK, offline=True, key="GATEWAY_KEY")
    assert environment.items() >= {("GATEWAY_KEY", "a"), ("HF_TOKEN", "d")}
    assert not {"OTHER_KEY", "PGPASSWORD"} & environment.keys()


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write to"):
        ChildProcess("python", tmp_path, tmp_path / "file" / "logs" / "evaluator.log", offline=True)
