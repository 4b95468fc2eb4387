"""What several kinds of evidence say together about one cause. Pure."""

from collections.abc import Collection

from tracker.domain.health.series.loss import SeriesName

_SILENT = "silent"
_NCCL = "nccl"
_LEAK = "memory grew until it was full: look for a leak"
_JOINT = (
    (SeriesName.THROUGHPUT, {_NCCL}, "the network between the processes is slow or broken"),
    (SeriesName.THROUGHPUT, {_SILENT}, "the training waits for data: look at data loading"),
    ("host_oom", {SeriesName.MEMORY}, _LEAK),
    ("oom", {SeriesName.MEMORY}, _LEAK),
    ("oom", set[str](), "memory did not grow before: this batch or this sequence length is too large"),
)
"""Cause, what must be there with it, and what they say: the first that fits decides."""


def joint_hint(cause: str, *, line_classes: Collection[str], series: Collection[str], silent: bool) -> str:
    """Return what all classes of lines and findings around a cause say of it; "" if nothing fits."""
    evidence = set(series)
    if silent:
        evidence.add(_SILENT)
    if any(name.startswith(_NCCL) for name in line_classes):
        evidence.add(_NCCL)
    for of_cause, needed, hint in _JOINT:
        if cause == of_cause and needed <= evidence:
            return hint
    return ""
