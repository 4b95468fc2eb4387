"""Size of a model and a setup -> memory that a training needs, and whether it fits. Pure.

Only states count: weights, gradients and optimizer. Activations come on top and grow with batch size x length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from tracker.domain.readiness.finding import Finding, error, info, ok, warning
from tracker.domain.readiness.training.facts import Host, Memory
from tracker.domain.readiness.training.fixes import raise_memory
from tracker.domain.records.display import bytes_text

BUFFERS = 1.5
"""Of memory on the host, `additional_buffer_factor` of deepspeed's estimators."""
LORA_RANK = 16
CHECKPOINT_BYTES = 14
"""Of each parameter in a checkpoint: 2 of the weights, 12 of the optimizer with its float32 copy."""


class Zero(IntEnum):
    """What deepspeed divides among the GPUs: optimizer (1), gradients, too (2), parameters, too (3)."""

    NOTHING = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3


class Offload(StrEnum):
    """What is kept in the memory of the host."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    ALL = "all"


class Method(StrEnum):
    """What is trained."""

    FULL = "full fine-tuning"
    LORA = "LoRA"


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The numbers of a model that decide how much memory its training needs."""

    where: str
    parameters: int
    largest_layer: int
    """Parameters of the largest module, which ZeRO 3 gathers as a whole."""
    lora_parameters: int
    """Of adapters with rank LORA_RANK on all linear layers but the last."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How a training is distributed."""

    method: Method
    zero: Zero
    offload: Offload

    def __str__(self) -> str:
        """Such as `LoRA, ZeRO 3, offload all`."""
        return f"{self.method}, ZeRO {self.zero.value}, offload {self.offload}"


@dataclass(frozen=True, kw_only=True)
class Need:
    """Memory that a training needs."""

    gpu_bytes: int
    """Of each GPU."""
    host_bytes: int
    """Of all ranks on the machine together."""


def setups(zero: Zero | None = None, offload: Offload | None = None) -> tuple[Setup, ...]:
    """Return all setups that exist, fastest first; with what is given, only those."""
    found = []
    for method in Method:
        for kept, stages in _STAGES.items():
            for stage in stages:
                if zero in (None, stage) and offload in (None, kept):
                    found.append(Setup(method=method, zero=stage, offload=kept))
    return tuple(found)


_STAGES: Mapping[Offload, Sequence[Zero]] = {
    Offload.NONE: tuple(Zero),
    Offload.OPTIMIZER: (Zero.OPTIMIZER, Zero.GRADIENTS, Zero.PARAMETERS),
    Offload.ALL: (Zero.PARAMETERS,),
}
"""The stages in which deepspeed can offload."""


def needed(shape: ModelShape, setup: Setup, gpus: int, machines: int = 1) -> Need:
    """Return the memory that a training in 16 bits with Adam needs on each of its machines with `gpus` GPUs.

    P parameters, N GPUs in all, n on a machine, largest layer L. For ZeRO 2 and 3 as deepspeed 0.19.8 estimates it
    (`estimate_zero2_model_states_mem_needs`, `estimate_zero3_model_states_mem_needs` with zero_init): bytes on a GPU
    | ZeRO | no offload | optimizer | all |
    | 2 | 2P + 18P/N | 2P | |
    | 3 | 4L + 18P/N | 4L + 2P/N | 4L |
    and on the host, x 1.5: without offload 4Pn (each rank loads float32), of ZeRO 3 4Ln; optimizer max(4N, 16)P, of
    ZeRO 3 16P / machines; all 18P / machines. ZeRO 0 and 1 divide less of the same 20 bytes of a parameter
    (Rajbhandari et al. 2020, section 5: 2 weights, 2 gradients, 12 optimizer; deepspeed holds 4 more for gradients
    in float32): 20P and 4P + 16P/N.
    LoRA needs this for its adapters, and 2P for the frozen weights, which ZeRO 3 divides or offloads.
    """
    if setup.method is Method.FULL:
        return _states(shape.parameters, shape.largest_layer, setup, gpus, machines)
    states = _states(shape.lora_parameters, shape.largest_layer, setup, gpus, machines)
    frozen = 2 * shape.parameters
    if setup.zero is not Zero.PARAMETERS:
        loading = int(frozen * gpus * BUFFERS)
        return Need(gpu_bytes=states.gpu_bytes + frozen, host_bytes=states.host_bytes + loading)
    if setup.offload is Offload.ALL:
        return Need(gpu_bytes=states.gpu_bytes, host_bytes=states.host_bytes + int(frozen * BUFFERS / machines))
    return Need(gpu_bytes=states.gpu_bytes + frozen // (gpus * machines), host_bytes=states.host_bytes)


def _states(trained: int, largest: int, setup: Setup, gpus: int, machines: int) -> Need:
    """Return what the trained parameters need; see `needed`."""
    is_divided, all_gpus = setup.zero is Zero.PARAMETERS, gpus * machines
    if setup.offload is Offload.ALL:
        gpu, host = 4 * largest, 18 * trained // machines
    elif setup.offload is Offload.OPTIMIZER:
        gpu = (
            4 * largest + 2 * trained // all_gpus
            if is_divided
            else (4 if setup.zero is Zero.OPTIMIZER else 2) * trained
        )
        host = 16 * trained // machines if is_divided else max(4 * all_gpus, 16) * trained
    else:
        whole = {Zero.NOTHING: 20, Zero.OPTIMIZER: 4, Zero.GRADIENTS: 2, Zero.PARAMETERS: 0}[setup.zero]
        divided = {Zero.NOTHING: 0, Zero.OPTIMIZER: 16, Zero.GRADIENTS: 18, Zero.PARAMETERS: 18}[setup.zero]
        gpu = whole * trained + divided * trained // all_gpus + (4 * largest if is_divided else 0)
        host = 4 * gpus * (largest if is_divided else trained)
    return Need(gpu_bytes=gpu, host_bytes=int(host * BUFFERS))


@dataclass(frozen=True, kw_only=True)
class MemoryRoom:
    """What there is for a training."""

    gpus: int
    gpu_bytes: int | None
    """Memory of the smallest GPU. None: not known."""
    memory: Memory | None
    host: Host

    def on_gpu(self, need: Need) -> bool:
        """Return whether the states fit on each GPU; True if its size is not known."""
        return self.gpu_bytes is None or need.gpu_bytes <= self.gpu_bytes

    def on_host(self, need: Need) -> bool:
        """Return whether all ranks fit into the memory of the machine; True if its size is not known."""
        return self.memory is None or need.host_bytes <= self.memory.room_bytes

    def lacks_only_host(self, need: Need) -> bool:
        """Return whether more memory on the host would be enough."""
        return self.on_gpu(need) and not self.on_host(need)

    def fits(self, setup: Setup, need: Need) -> bool:
        """Return whether a setup fits; what is needed only to load a model can be avoided."""
        if setup.offload is Offload.NONE:
            return self.on_gpu(need)
        return self.on_gpu(need) and self.on_host(need)


def memory_need_findings(shape: ModelShape, chosen: Sequence[Setup], room: MemoryRoom) -> Iterator[Finding]:
    """Yield the need of each chosen setup, and whether the training fits in any of them."""
    needs = {setup: needed(shape, setup, room.gpus, room.host.nodes) for setup in setups()}
    known = f"{shape.parameters / 1e9:.2f} billion parameters, activations not counted"
    machines = f" on each of {room.host.nodes} machines" if room.host.nodes > 1 else ""
    yield ok("model", f"{shape.where}: {known}; GPUs: {room.gpus}{machines}")
    for setup in chosen:
        is_good = room.gpu_bytes is not None and room.fits(setup, needs[setup])
        yield (ok if is_good else info)(str(setup), _need_text(setup, needs[setup], room))
    methods = {setup.method for setup in chosen if room.fits(setup, needs[setup])}
    if not methods:
        message = "neither full fine-tuning nor LoRA fits: the training would run out of memory"
        yield error("model", message, _advice(chosen, needs, room))
    elif Method.FULL not in methods:
        message = "full fine-tuning does not fit: it would run out of memory"
        yield warning("model", message, _advice(chosen, needs, room))


def _need_text(setup: Setup, need: Need, room: MemoryRoom) -> str:
    text = f"{bytes_text(need.gpu_bytes)} a GPU, {bytes_text(need.host_bytes)} of host memory"
    if not room.on_gpu(need):
        return f"{text}: too large for a GPU"
    if not room.fits(setup, need):
        return f"{text}: too large for the memory here"
    if room.gpu_bytes is None:
        return f"{text}: not compared, the memory of the GPUs is not known"
    if not room.on_host(need):
        return f"{text}: fits, but not while each rank loads the model"
    return f"{text}: fits"


def _advice(chosen: Sequence[Setup], needs: Mapping[Setup, Need], room: MemoryRoom) -> str:
    """Return what to do: permit more memory if that is enough, or use the first setup of each method that fits."""
    hints = []
    lacking = [needs[one].host_bytes for one in chosen if room.lacks_only_host(needs[one])]
    if lacking and room.memory is not None:
        hints.append(raise_memory(room.host, room.memory, min(lacking)))
    if fitting := _first_fitting(needs, room):
        hints.append(f"use what fits: {'; '.join(map(str, fitting))}")
    return ", or ".join(hints) or "use more or larger GPUs, or a smaller model"


def _first_fitting(needs: Mapping[Setup, Need], room: MemoryRoom) -> list[Setup]:
    """Return the fastest setup of each method that fits; nothing without a GPU to compare with."""
    if room.gpu_bytes is None:
        return []
    first: dict[Method, Setup] = {}
    for setup, need in needs.items():
        if room.fits(setup, need):
            first.setdefault(setup.method, setup)
    return list(first.values())
