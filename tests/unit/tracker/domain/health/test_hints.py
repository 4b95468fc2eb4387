"""What evidence of several kinds says together."""

from collections.abc import Collection

import pytest

from tracker.domain.health.hints import joint_hint

CASES: dict[tuple[str, Collection[str], Collection[str], bool], str] = {
    ("throughput", ("python_error", "nccl_timeout"), ("throughput",), True): "network",
    ("throughput", (), ("throughput",), True): "data loading",
    ("throughput", ("python_error",), ("throughput",), False): "",
    ("oom", ("oom",), ("memory", "flat"), False): "a leak",
    ("host_oom", ("host_oom",), ("memory",), False): "a leak",
    ("oom", ("oom",), ("flat",), True): "this batch",
    ("host_oom", ("host_oom",), (), False): "",
    ("spike", ("nccl_error",), ("memory",), True): "",
}


@pytest.mark.parametrize("case", CASES)
def test_evidence_says_one_sentence_or_nothing(case: tuple[str, Collection[str], Collection[str], bool]) -> None:
    cause, lines, series, silent = case
    hint = joint_hint(cause, line_classes=lines, series=series, silent=silent)
    assert CASES[case] in hint
    assert bool(hint) == bool(CASES[case])
