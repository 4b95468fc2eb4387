"""What is known about an engine, a model and a benchmark before an engine starts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineEnvironment:
    """The environment of `serve.python`, and the devices of this machine that an engine would use."""

    python: str
    version: str
    """Version of the engine. Empty: it is not installed."""
    torch: str
    """Version of PyTorch, with its build, such as `2.14.0+cpu`. Empty: unknown."""
    on_cpu: bool
    memory_bytes: int | None
    """Of the GPUs that the engine uses, or of the machine without GPUs. None: unknown."""
    free_share: float | None = None
    """Fraction of the GPUs' memory that no process uses; of several GPUs the lowest. None: unknown, or no GPU."""
    compute_capability: tuple[int, int] | None = None
    """The lowest of these GPUs, such as (9, 0). None: unknown, or no GPU."""
    head_sizes: tuple[int, ...] = ()
    """Sizes of attention heads that the engine computes on a CPU. Empty: unknown, or a GPU."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A checkpoint as an engine sees it, together with the base model of an adapter."""

    where: str
    """Folder of the checkpoint."""
    weights_bytes: int
    """Size of the weight files."""
    dtype: str
    """Data type in config.json, such as `bfloat16`. Empty: unknown."""
    max_length: int | None
    """Maximum length of prompt and answer in tokens, from config.json. None: unknown, or scaled by RoPE settings."""
    tokenizer: str
    """Folder of the tokenizer. Empty: there is none."""
    has_chat_template: bool
    tokenizer_above: str = ""
    """Folder of a tokenizer above a checkpoint without one, where an engine does not look by itself."""
    head_size: int | None = None
    """Size of an attention head. None: unknown, or a kind of attention for which `EngineEnvironment` has no sizes."""


@dataclass(frozen=True, kw_only=True)
class PromptLengths:
    """Tokens of the questions of one benchmark, without the text that a chat template adds."""

    benchmark: str
    tokens: tuple[int, ...]
    """Of each counted question, longest first; the longest questions are counted."""
    questions: int


@dataclass(frozen=True, kw_only=True)
class HubState:
    """Where EvalScope would get the data of a benchmark from."""

    dataset: str
    """Name on the hub, such as `AI-ModelScope/gsm8k`."""
    url: str
    is_cached: bool
    is_reachable: bool
    """True if it is cached: the hub is not contacted then."""
