"""Which tests one process of several gets together."""

from __future__ import annotations

import pytest

from tests.conftest import FileByFile


@pytest.fixture
def scheduler(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> FileByFile:
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen", "popen"], raising=False)
    return FileByFile(pytestconfig)


def test_the_tests_of_a_file_stay_together(scheduler: FileByFile) -> None:
    first, second = (scheduler._split_scope(f"tests/unit/test_dealing.py::test_{name}") for name in ("a", "b[x::y]"))
    other = scheduler._split_scope("tests/unit/test_requires.py::test_a")
    assert first == second
    assert first != other


def test_all_real_vllm_servers_are_started_by_one_process(scheduler: FileByFile) -> None:
    files = ("tests/e2e/test_loop.py", "tests/integration/test_vllm.py", "tests/integration/test_vllm_kills.py")
    assert {scheduler._split_scope(f"{file}::test_a") for file in files} == {"vllm"}
