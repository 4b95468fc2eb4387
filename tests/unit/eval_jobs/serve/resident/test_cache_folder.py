"""Where vLLM keeps what it compiles."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from eval_jobs.serve.resident.cold import cache_folder

SHARED = "checkpoint-tracker/vllm"


@pytest.mark.parametrize(
    ("variables", "used"),
    [
        ({}, f"home/.cache/{SHARED}"),
        ({"XDG_CACHE_HOME": "relative"}, f"home/.cache/{SHARED}"),
        ({"XDG_CACHE_HOME": "HERE/xdg"}, f"xdg/{SHARED}"),
        ({"XDG_CACHE_HOME": "HERE/xdg", "VLLM_CACHE_ROOT": "HERE/own"}, "own"),
        ({"XDG_CACHE_HOME": "HERE/file"}, "project/vllm-cache"),
    ],
)
def test_all_projects_of_a_user_share_a_cache_where_one_can_be_written(
    variables: Mapping[str, str], used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "file").touch()
    given = {name: value.replace("HERE", str(tmp_path)) for name, value in variables.items()}
    for _ in range(2):
        assert cache_folder(given, tmp_path / "project") == tmp_path / used


def test_without_a_home_folder_the_cache_is_the_projects_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    assert cache_folder({}, tmp_path) == tmp_path / "vllm-cache"
