"""What a training needs, beside deepspeed's own estimators, and the findings about it."""

from dataclasses import replace
from itertools import product

import pytest

from tests.model_headers import MODELS
from tests.requires import requires_package
from tracker.domain.readiness.finding import Level
from tracker.domain.readiness.training.facts import Host, LaunchPlace, Memory
from tracker.domain.readiness.training.memory import (
    MemoryRoom,
    Method,
    ModelShape,
    Need,
    Offload,
    Setup,
    Zero,
    memory_need_findings,
    needed,
    setups,
)

GIB = 1 << 30
SHAPES = [
    ModelShape(where=one.name, parameters=one.parameters, largest_layer=one.largest_layer(), lora_parameters=40_000_000)
    for one in MODELS
]
SEVEN = SHAPES[6]
HOST = Memory(total_bytes=512 * GIB, available_bytes=500 * GIB)
ROOM = MemoryRoom(gpus=8, gpu_bytes=80 * GIB, memory=HOST, host=Host())


def full(zero: int, offload: Offload = Offload.NONE, method: Method = Method.FULL) -> Setup:
    return Setup(method=method, zero=Zero(zero), offload=offload)


def of_deepspeed(shape: ModelShape, setup: Setup, gpus: int, machines: int) -> Need:
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    is_offloaded = setup.offload is not Offload.NONE
    if setup.zero is Zero.GRADIENTS:
        host, gpu = estimate_zero2_model_states_mem_needs(
            shape.parameters, num_gpus_per_node=gpus, num_nodes=machines, cpu_offload=is_offloaded
        )
    else:
        host, gpu, _ = estimate_zero3_model_states_mem_needs(
            shape.parameters,
            shape.largest_layer,
            num_gpus_per_node=gpus,
            num_nodes=machines,
            cpu_offload=is_offloaded,
            cpu_offload_params=setup.offload is Offload.ALL,
        )
    return Need(gpu_bytes=gpu, host_bytes=host)


def test_the_need_is_that_of_deepspeeds_estimators() -> None:
    requires_package("deepspeed")
    known = [setup for setup in setups() if setup.method is Method.FULL and setup.zero >= Zero.GRADIENTS]
    assert len(known) == 5
    for shape, setup, (gpus, machines) in product(SHAPES, known, ((1, 1), (2, 1), (8, 1), (8, 4))):
        ours, theirs = needed(shape, setup, gpus, machines), of_deepspeed(shape, setup, gpus, machines)
        assert ours.gpu_bytes == pytest.approx(theirs.gpu_bytes, rel=0.05), (shape.where, setup, gpus)
        assert ours.host_bytes == pytest.approx(theirs.host_bytes, rel=0.05), (shape.where, setup, gpus)


def test_one_gpu_divides_nothing_and_each_stage_divides_more() -> None:
    alone = {needed(SEVEN, full(zero), 1).gpu_bytes for zero in (0, 1, 2)}
    assert alone == {20 * SEVEN.parameters}
    of_eight = [needed(SEVEN, full(zero), 8).gpu_bytes for zero in (0, 1, 2, 3)]
    assert of_eight == sorted(of_eight, reverse=True)


@pytest.mark.parametrize("setup", [one for one in setups() if one.method is Method.LORA], ids=str)
def test_adapters_need_the_frozen_weights_and_little_more(setup: Setup) -> None:
    lora, whole = (needed(SEVEN, replace(setup, method=method), 8) for method in (Method.LORA, Method.FULL))
    frozen = {Zero.PARAMETERS: 2 * SEVEN.parameters // 8}.get(setup.zero, 2 * SEVEN.parameters)
    assert lora.gpu_bytes >= (frozen if setup.offload is not Offload.ALL else 4 * SEVEN.largest_layer)
    # ZeRO 2 with an offloaded optimizer holds only 16-bit weights on a GPU, whatever is trained.
    assert lora.gpu_bytes <= whole.gpu_bytes + 20 * SEVEN.lora_parameters
    assert lora.host_bytes <= whole.host_bytes


@pytest.mark.parametrize(
    ("zero", "offload", "count"),
    [
        (None, None, 16),
        (0, None, 2),
        (1, None, 4),
        (3, None, 6),
        (None, Offload.ALL, 2),
        (3, Offload.ALL, 2),
        (2, Offload.ALL, 0),
        (0, Offload.OPTIMIZER, 0),
    ],
)
def test_only_setups_that_deepspeed_has_are_estimated(zero: int | None, offload: Offload | None, count: int) -> None:
    assert len(setups(None if zero is None else Zero(zero), offload)) == count


LIMITED = Memory(
    total_bytes=512 * GIB, available_bytes=500 * GIB, limit_bytes=64 * GIB, limited_at="/c", limit_room_bytes=60 * GIB
)
SMALL_GPUS = replace(ROOM, gpu_bytes=12 * GIB)
ONE_GPU = replace(ROOM, gpus=1, gpu_bytes=24 * GIB)


@pytest.mark.parametrize(
    ("room", "zero", "offload", "level", "hint"),
    [
        (ROOM, 2, None, Level.OK, ""),
        (ROOM, 0, None, Level.WARNING, "use what fits: full fine-tuning, ZeRO 1, offload none; LoRA, ZeRO 0"),
        (ONE_GPU, 3, None, Level.WARNING, "use what fits: full fine-tuning, ZeRO 2, offload optimizer; LoRA, ZeRO 0"),
        (replace(ONE_GPU, gpu_bytes=GIB), 3, Offload.ALL, Level.ERROR, "use more or larger GPUs, or a smaller model"),
        (replace(SMALL_GPUS, memory=LIMITED), 3, Offload.ALL, Level.WARNING, "raise the limit in /c, or use what fits"),
        (
            replace(SMALL_GPUS, memory=LIMITED, host=Host(has_systemd=True, is_root=True)),
            *(3, Offload.ALL, Level.WARNING),
            "run the training as `systemd-run --scope -p MemoryMax=192G -- CMD`",
        ),
        (
            replace(SMALL_GPUS, memory=LIMITED, host=Host(has_systemd=True)),
            *(3, Offload.ALL, Level.WARNING),
            "`sudo systemd-run --uid=$(id -u) --scope -p MemoryMax=192G -- CMD`",
        ),
        (
            replace(SMALL_GPUS, memory=LIMITED, host=Host(place=LaunchPlace.SLURM)),
            *(3, Offload.ALL, Level.WARNING),
            "submit the job with `sbatch --mem=192G`",
        ),
        (
            replace(SMALL_GPUS, memory=Memory(total_bytes=32 * GIB, available_bytes=30 * GIB)),
            *(3, Offload.ALL, Level.WARNING),
            "use a machine with at least 206 GB of memory",
        ),
        (
            replace(SMALL_GPUS, memory=replace(HOST, available_bytes=20 * GIB)),
            *(3, Offload.ALL, Level.ERROR),
            "end other programs on this machine",
        ),
        (replace(ROOM, gpu_bytes=None), 0, None, Level.OK, ""),
        (replace(ROOM, gpu_bytes=None, memory=None), 3, Offload.ALL, Level.OK, ""),
    ],
)
def test_a_training_that_does_not_fit_is_told_what_would(
    room: MemoryRoom, zero: int, offload: Offload | None, level: Level, hint: str
) -> None:
    chosen = setups(Zero(zero), offload or Offload.NONE)
    found = list(memory_need_findings(SEVEN, chosen, room))
    worst = [one for one in found if one.level in {Level.WARNING, Level.ERROR}]
    fits = [one.message.endswith("fits") or ": fits, but" in one.message for one in found if one.subject != "model"]
    assert fits == [one.level is Level.OK for one in found if one.subject != "model"]
    assert [one.level for one in worst] == ([] if level is Level.OK else [level])
    assert hint in "".join(one.hint for one in worst)


@pytest.mark.parametrize(
    ("room", "setup", "said"),
    [
        (ROOM, full(2), "32.4 GB a GPU, 366 GB of host memory: fits"),
        (ROOM, full(0), "152 GB a GPU, 366 GB of host memory: too large for a GPU"),
        (replace(ROOM, memory=LIMITED), full(2), ": fits, but not while each rank loads the model"),
        (replace(ROOM, memory=LIMITED), full(3, Offload.ALL), ": too large for the memory here"),
        (replace(ROOM, gpu_bytes=None), full(2), ": not compared, the memory of the GPUs is not known"),
    ],
)
def test_each_setup_has_its_need_and_whether_it_fits(room: MemoryRoom, setup: Setup, said: str) -> None:
    found = {one.subject: one.message for one in memory_need_findings(SEVEN, [setup], room)}
    assert found[str(setup)].endswith(said)
