"""Findings about the GPUs that a training would use."""

import pytest

from tracker.domain.readiness.training.facts import GpuProcess, Host, LaunchPlace, TrainingGpu, TrainingGpus
from tracker.domain.readiness.training.gpus import training_gpu_findings

GIB = 1 << 30
IDLE = TrainingGpu(index=0, memory_bytes=80 * GIB, free_bytes=79 * GIB, ecc_errors=0, is_persistent=True, processes=())
USED = TrainingGpu(index=1, memory_bytes=80 * GIB, free_bytes=30 * GIB)
OURS = tuple(GpuProcess(pid=pid, user=user) for pid, user in ((7, "ann"), (8, ""), (9, "bob"), (10, "bob")))


@pytest.mark.parametrize(
    ("found", "wanted", "said"),
    [
        (TrainingGpus(gpus=(IDLE,), driver="550.54"), None, ["ok 1 with 85.9 GB of memory, driver 550.54"]),
        (TrainingGpus(gpus=(TrainingGpu(index=0),)), 1, ["ok 1"]),
        (TrainingGpus(), None, ["info unknown"]),
        (TrainingGpus(why_unknown="no driver"), None, ["info unknown: no driver"]),
        (TrainingGpus(why_unknown="no driver"), 2, ["error 0 visible here, but the training uses 2: no driver"]),
        (
            TrainingGpus(gpus=(IDLE,)),
            2,
            ["error 1 visible here, but the training uses 2"],
        ),
        (
            TrainingGpus(gpus=(USED,)),
            None,
            ["ok 1 with", "warning 53.7 GB of its memory is in use by processes that are not visible here"],
        ),
        (
            TrainingGpus(gpus=(TrainingGpu(index=3, processes=OURS[:1]),)),
            None,
            ["ok 1", "warning its memory is in use by process 7 of ann"],
        ),
        (
            TrainingGpus(gpus=(TrainingGpu(index=3, processes=OURS),)),
            None,
            ["ok 1", "warning its memory is in use by processes 7 of ann, 8, 9 of bob and 1 more"],
        ),
        (
            TrainingGpus(gpus=(TrainingGpu(index=3, ecc_errors=2),)),
            None,
            ["ok 1", "warning 2 uncorrected memory errors since the driver was loaded"],
        ),
        (
            TrainingGpus(gpus=(TrainingGpu(index=3, is_persistent=False),)),
            None,
            ["ok 1", "info persistence mode is off"],
        ),
        (
            TrainingGpus(gpus=(TrainingGpu(index=3, is_lost=True),)),
            None,
            ["ok 1", "error it has fallen off the bus"],
        ),
        (TrainingGpus(is_silent=True), 2, ["warning not known: they do not respond"]),
    ],
)
def test_gpus_are_as_the_training_needs_them_or_it_is_said(
    found: TrainingGpus, wanted: int | None, said: list[str]
) -> None:
    findings = list(training_gpu_findings(found, wanted, Host()))
    assert len(findings) == len(said)
    for finding, expected in zip(findings, said, strict=True):
        assert f"{finding.level} {finding.message}".startswith(expected)
        assert finding.hint or finding.level in {"ok", "info"}


@pytest.mark.parametrize(
    ("place", "where"), [(LaunchPlace.SHELL, "`"), (LaunchPlace.CONTAINER, "` on the host of the")]
)
def test_what_a_container_cannot_do_is_done_on_its_host(place: LaunchPlace, where: str) -> None:
    gpu = TrainingGpu(index=3, ecc_errors=2, is_persistent=False)
    hints = [one.hint for one in training_gpu_findings(TrainingGpus(gpus=(gpu,)), None, Host(place=place)) if one.hint]
    for hint, command in zip(hints, ("nvidia-smi -r -i 3", "nvidia-smi -pm 1"), strict=True):
        assert f"run `sudo {command}{where}" in hint
        assert ("on the host" in hint) == (place is LaunchPlace.CONTAINER)
