"""Which tests one process of several gets together."""

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


def test_all_files_that_share_a_server_of_one_process_go_to_one(scheduler: FileByFile) -> None:
    files = ("e2e/test_regression_reaches_people.py", "integration/test_vllm.py", "integration/test_warm_vllm.py")
    assert {scheduler._split_scope(f"tests/{file}::test_a") for file in files} == {"vllm"}
