"""How a checkpoint is served. A part of `types`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from eval_jobs.records.bounds import Bounds
from eval_jobs.records.program import Program


class EngineKind(StrEnum):
    """Who serves the checkpoint."""

    VLLM = "vllm"
    SGLANG = "sglang"
    REMOTE = "remote"
    PLUGIN = "plugin"
    """Comes from another package; `ServeSpec.program` names it."""


@dataclass(frozen=True, kw_only=True)
class OnlyWhen:
    """When a worker may begin with a checkpoint. Nothing set: always."""

    hours: str = ""
    """Time of day, such as `"20:00-07:00"`, in `time_zone`. Empty: any."""
    time_zone: str = ""
    """Zone of these hours, such as `Europe/Berlin`."""
    gpu_below_pct: Annotated[float | None, Bounds(gt=0, le=100)] = None
    """The busiest of the worker's GPUs must be busy for less than this percentage of the time, such as 10. Needs
    nvidia-ml-py or `nvidia-smi`."""
    gpu_over_s: Annotated[float, Bounds(ge=5, le=300)] = 5.0
    """Seconds over which that is averaged."""


class SwapPolicy(StrEnum):
    """Whether weights may be put into an engine that runs."""

    AUTO = "auto"
    """Where it is proven to give what a new start gives, to the bit."""
    NEVER = "never"
    """Every checkpoint is a new start."""


class Between(StrEnum):
    """What happens to an engine when nothing waits to be served."""

    STAY = "stay"
    """It keeps its memory, and the next checkpoint is served at once."""
    SLEEP = "sleep"
    """On an accelerator it gives most of its memory back; on a CPU the same as `stay`."""
    STOP = "stop"


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """Settings of an engine, for built-in engines and plugins alike."""

    python: str = ""
    """vllm: interpreter of the environment that holds vLLM (on a GPU machine, the one with CUDA vLLM). Empty: the
    environment of the tracker."""
    dtype: str = "auto"
    """vllm: data type of the weights in memory, as in `--dtype`."""
    max_model_len: Annotated[int | None, Bounds(gt=0)] = None
    """vllm: longest context, in tokens."""
    args: tuple[str, ...] = ()
    """vllm: further arguments of its API server."""
    port: Annotated[int, Bounds(ge=0, le=65535)] = 0
    """vllm: port on 127.0.0.1; 0 picks a free one."""
    startup_timeout_s: Annotated[float, Bounds(gt=0)] = 600.0
    """How long the engine may take to answer."""
    trust_remote_code: bool = False
    """vllm: run Python code that comes with a checkpoint. Only for code that you wrote."""
    base_url: str = ""
    """remote: address, such as `http://gpu7:8000/v1`."""
    model: str = ""
    """remote: model to ask for; `{step}` and `{run}` are replaced. Empty: the only one."""
    api_key_env: str = ""
    """remote: name of the environment variable that holds the key (never the key itself)."""
    swap: SwapPolicy = SwapPolicy.AUTO
    """vllm: `auto` puts the next checkpoint's weights into the engine that runs, where that is proven to give what a
    new start gives, to the bit, and starts anew otherwise. `never`: always a new start."""
    between: Between = Between.STAY
    """vllm: what the engine does when no checkpoint waits. `stay`: keep its memory. `sleep`: on a GPU give it back but
    for a little, on a CPU the same as `stay`. `stop`: end."""
    idle_timeout_s: Annotated[float, Bounds(gt=0)] = 3600.0
    """vllm: an engine that served nothing for so long is stopped."""
    gpu_memory_utilization: Annotated[float | None, Bounds(gt=0, le=1)] = None
    """vllm: share of the GPU's memory that it takes (on a CPU, of the machine's), such as 0.3 beside a trainer;
    default: most of it. Another value begins no new series."""
    niceness: Annotated[int, Bounds(ge=0, le=19)] = 0
    """vllm: CPU niceness of its processes, 19 the lowest priority. Latencies are timed at this priority too."""


@dataclass(frozen=True, kw_only=True)
class ServeSpec(ServeSettings):
    """How a checkpoint is served."""

    engine: EngineKind = EngineKind.VLLM
    program: Program | None = None
    """plugin: which one."""
    only_when: OnlyWhen = OnlyWhen()

    @property
    def engine_name(self) -> str:
        """Name of the engine, as the settings call it."""
        if self.program is None:
            return self.engine.value
        return self.program.name
