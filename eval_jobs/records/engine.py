"""The engine that serves a checkpoint: what it is, where it is, and how the weights were loaded."""

from dataclasses import dataclass

from eval_jobs.records.serve import EngineKind


@dataclass(frozen=True, kw_only=True)
class Canary:
    """Greedy response of an engine to one fixed prompt; bit-identical for equal weights on an equal engine."""

    prompt: tuple[int, ...]
    """Token ids."""
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token of the answer."""


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """The engine that served a checkpoint, and how the weights were loaded."""

    name: str
    version: str
    load_method: str
    """`cold`, `swap`, `adapter`, `remote` or `imported`."""
    load_s: float
    log: str
    """Path of the engine's log. Empty: a remote engine."""
    machine: str = ""
    """Hash of what its speed depends on: host, CPU, GPUs, driver; of the address if it is remote. Empty: unknown."""
    device: str = ""
    """Readable name of the CPU or GPUs; the same on machines of the same kind. Empty: unknown."""
    gpus: int = 0
    """Number of GPUs it computes on. 0: none, or the engine was not started by the tracker."""
    is_batch_invariant: bool = False
    """Whether responses are bit-identical, independent of other concurrent requests."""
    canaries: tuple[Canary, ...] = ()
    """Responses to the fixed prompts, sent first after the weights were loaded. Empty: not sent."""
    load_reason: str = ""
    """Why this load method was chosen, in words. Empty: unknown, or there was no choice."""
    certificate: str = ""
    """ID of the certificate that this load method gives the same outputs as a cold start. Empty: none was used."""

    @property
    def is_ours(self) -> bool:
        """Whether the tracker started it, with a random model name and no key: a mismatch means another server."""
        return self.name in (EngineKind.VLLM, EngineKind.SGLANG)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server that currently serves one checkpoint."""

    base_url: str
    model: str
    api_key_env: str
    """Name of the environment variable with the API key. Empty: no key is needed."""
    info: EngineInfo
    tokenizer: str = ""
    """Folder of the checkpoint's tokenizer. Empty: unknown."""
    client_cores: tuple[int, ...] = ()
    """Cores of this machine on which a busy client does not slow down the engine. Empty: any core."""
    client_niceness: int = 0
    """Nice value of such a client, which gives the engine priority."""
