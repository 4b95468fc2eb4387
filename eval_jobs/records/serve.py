"""How a checkpoint is served. A part of `types`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    """Time of day in `time_zone`, `20:00-07:00`; empty: any."""
    time_zone: str = ""
    """Name in the IANA database, `Europe/Berlin`."""
    gpu_below_pct: float | None = None
    """The GPUs must be busy for less than this share of the time, in percent; None: as busy as they like."""
    gpu_over_s: float = 5.0
    """Time over which that share is averaged."""


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
class ServeSpec:
    """How a checkpoint is served."""

    engine: EngineKind = EngineKind.VLLM
    python: str = ""
    """vllm: interpreter of the environment that holds vLLM; empty: the running one."""
    dtype: str = "auto"
    max_model_len: int | None = None
    args: tuple[str, ...] = ()
    """vllm: further arguments of the API server, as on its command line."""
    port: int = 0
    """vllm: 0 picks a free one."""
    startup_timeout_s: float = 600.0
    trust_remote_code: bool = False
    base_url: str = ""
    """remote: `http://host:port/v1`."""
    model: str = ""
    """remote: model name to ask for; `{step}` and `{run}` are replaced."""
    api_key_env: str = ""
    """remote: name of the environment variable that holds the key; the key itself is never stored."""
    swap: SwapPolicy = SwapPolicy.AUTO
    between: Between = Between.STAY
    idle_timeout_s: float = 3600.0
    """An engine that served nothing for so long is stopped."""
    gpu_memory_utilization: float | None = None
    """Share of the GPU's memory that the engine takes, above 0 to 1; None: what the engine takes by itself."""
    program: Program | None = None
    """plugin: which one."""
    niceness: int = 0
    """Of the engine's processes, 0 to 19."""
    only_when: OnlyWhen = OnlyWhen()

    @property
    def engine_name(self) -> str:
        """Name of the engine, as the settings call it."""
        return self.engine.value if self.program is None else self.program.name
