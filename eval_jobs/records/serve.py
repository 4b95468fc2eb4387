"""How a checkpoint is served. A part of `types`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from eval_jobs.records.bounds import Bounds
from eval_jobs.records.program import Program


class EngineKind(StrEnum):
    """What serves the checkpoint."""

    VLLM = "vllm"
    SGLANG = "sglang"
    REMOTE = "remote"
    PLUGIN = "plugin"
    """Comes from another package; `ServeSpec.program` names it."""


@dataclass(frozen=True, kw_only=True)
class OnlyWhen:
    """When a worker may begin with a checkpoint. Nothing set: always."""

    hours: str = ""
    """Time of day, such as `"20:00-07:00"`, in `time_zone`. Empty: any time."""
    time_zone: str = ""
    """Time zone of `hours`, such as `Europe/Berlin`."""
    gpu_below_pct: Annotated[float | None, Bounds(gt=0, le=100)] = None
    """Maximum utilization of the worker's busiest GPU in percent, such as 10. Requires nvidia-ml-py or
    `nvidia-smi`."""
    gpu_over_s: Annotated[float, Bounds(ge=5, le=300)] = 5.0
    """Averaging window of the GPU utilization, in seconds."""


class SwapPolicy(StrEnum):
    """Whether weights may be loaded into a running engine."""

    AUTO = "auto"
    """If a swap is certified to give outputs bit-identical to those of a cold start."""
    NEVER = "never"
    """Every checkpoint is a cold start."""


class Between(StrEnum):
    """State of an engine while no checkpoint is pending."""

    STAY = "stay"
    """It keeps its memory, and the next checkpoint is served immediately."""
    SLEEP = "sleep"
    """On an accelerator, it releases most of its memory; on a CPU, the same as `stay`."""
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of an engine, for built-in engines and plugins alike."""

    python: str = ""
    """vllm: Python interpreter of the environment with vLLM (on a GPU machine, the CUDA build). Empty: the
    tracker's own environment."""
    dtype: str = "auto"
    """vllm: data type of the weights, as for vLLM's `--dtype`."""
    max_model_len: Annotated[int | None, Bounds(gt=0)] = None
    """vllm: maximum context length, in tokens."""
    args: tuple[str, ...] = ()
    """vllm: additional arguments for its API server."""
    port: Annotated[int, Bounds(ge=0, le=65535)] = 0
    """vllm: port on 127.0.0.1; 0 selects a free port."""
    startup_timeout_s: Annotated[float, Bounds(gt=0)] = 600.0
    """Maximum startup time of the engine, in seconds."""
    trust_remote_code: bool = False
    """vllm: execute Python code contained in a checkpoint. Enable this only for code you trust."""
    base_url: str = ""
    """remote: base URL, such as `http://gpu7:8000/v1`."""
    model: str = ""
    """remote: model name; `{step}` and `{run}` are substituted. Empty: the server's only model."""
    api_key_env: str = ""
    """remote: environment variable that contains the API key (never the key itself)."""
    swap: SwapPolicy = SwapPolicy.AUTO
    """vllm: `auto` swaps the weights of a running engine where a swap is certified, and restarts
    the engine otherwise. `never` always restarts it."""
    between: Between = Between.STAY
    """vllm: engine state while no checkpoint is pending. `stay`: keep its memory. `sleep`: release most GPU
    memory (on a CPU the same as `stay`). `stop`: shut down."""
    idle_timeout_s: Annotated[float, Bounds(gt=0)] = 3600.0
    """vllm: seconds without a request after which the engine is stopped."""
    gpu_memory_utilization: Annotated[float | None, Bounds(gt=0, le=1)] = None
    """vllm: fraction of GPU memory to use (on a CPU, of the machine's memory), such as 0.3 on a GPU shared with a
    trainer. Default: vLLM's. A change starts a new series of latencies, not of scores."""
    niceness: Annotated[int, Bounds(ge=0, le=19)] = 0
    """vllm: Unix nice value of its processes, 0 to 19. Latency is measured at this priority too."""


@dataclass(frozen=True, kw_only=True)
class ServeSpec(ServeSettings):
    """How a checkpoint is served."""

    engine: EngineKind = EngineKind.VLLM
    program: Program | None = None
    """plugin: the selected plugin."""
    only_when: OnlyWhen = OnlyWhen()

    @property
    def engine_name(self) -> str:
        """Name of the engine, as in the settings."""
        if self.program is None:
            return self.engine.value
        return self.program.name
