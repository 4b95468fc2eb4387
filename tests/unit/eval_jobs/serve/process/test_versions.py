"""Which versions of vLLM were tested."""

import tomllib

import pytest

from eval_jobs.serve.process.versions import TESTED_VLLM, why_untested
from tests.requires import PROJECT


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.27.0", ""),
        ("0.29.1.post1", ""),
        ("0.32.0+cpu", ""),
        ("0.26.2", "vLLM 0.26.2 is older than the tested versions (0.27 to 0.33)"),
        ("0.9.1", "vLLM 0.9.1 is older than the tested versions (0.27 to 0.33)"),
        ("0.33.0", ""),
        ("0.34.0rc1", "vLLM 0.34.0rc1 is newer than the tested versions (0.27 to 0.33)"),
        ("1.0", "vLLM 1.0 is newer than the tested versions (0.27 to 0.33)"),
        ("dev", "the version of vLLM is unknown (tested: 0.27 to 0.33)"),
        ("", "the version of vLLM is unknown (tested: 0.27 to 0.33)"),
    ],
)
def test_a_version_that_was_not_run_is_named_with_those_that_were(version: str, words: str) -> None:
    assert why_untested(version) == words


def test_the_extra_allows_the_tested_versions_and_no_other() -> None:
    first, last = TESTED_VLLM
    major, minor = last.split(".")
    extra = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["vllm"]
    assert extra == [f"vllm>={first},<{major}.{int(minor) + 1}"]
