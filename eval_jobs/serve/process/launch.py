"""Command line and environment that start vLLM for one checkpoint. Pure.

    launch = Launch(checkpoint=checkpoint, name="engine-1f9c2b7a", port=20123, ...)
    argv = command(launch, spec, python=sys.executable)
    env = environment(os.environ, cache_dir=..., on_cpu=True)

The server gets a random model name, so that a response on the port proves which process sent it.
Order of the arguments: our defaults, the user's `serve.args` (the last one wins), then those that identify the engine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.errors import CheckpointUnreadable, ConfigError
from eval_jobs.host.secrets import HUB_TOKENS, passed_on
from eval_jobs.types import Between, Checkpoint, CheckpointFormat, ServeSpec

HOST = "127.0.0.1"

RESERVED_BY_ALL: Mapping[str, str] = {
    "--config": "write its arguments into serve.args: a config file could override the tracker's settings",
    "--host": "remove it: the engine listens on this machine only",
    "--port": "set serve.port",
    "--served-model-name": "remove it: the engine serves under a random model name",
    "--api-key": "remove it: a key on the command line is visible to all users of the machine, and none is needed",
    "--trust-remote-code": "set serve.trust_remote_code",
    "--dtype": "set serve.dtype",
}
"""Arguments of vLLM and SGLang that `serve.args` must not contain, and what to do instead."""

RESERVED_ARGS: Mapping[str, str] = {
    **RESERVED_BY_ALL,
    "--model": "remove it: the model is always the checkpoint",
    "--uds": "remove it: the engine listens on a port",
    "--lora-modules": "remove it: the tracker loads adapter checkpoints itself",
    "--enable-lora": "remove it: the tracker sets it for adapters, which never share an engine with a full model",
    "--max-cpu-loras": "remove it: the tracker decides how many adapters stay loaded",
    "--worker-extension-cls": "remove it: the tracker sets its own extension to swap weights",
    "--enable-sleep-mode": "set serve.between",
    "--hf-token": "set HF_TOKEN: a token on the command line is visible to all users of the machine",
    "--max-model-len": "set serve.max_model_len",
}

OPENS_MORE = frozenset(
    {"VLLM_API_KEY", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_ALLOW_INSECURE_SERIALIZATION"}
)
"""Not passed on: a key would lock us out of our own engine; the others let requests change the model or run code."""

ENGINE_DEFAULTS: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    # Without it, an engine looks up a wrong path on the Hub, and the error is about repositories.
    "HF_HUB_OFFLINE": "1",
    # `python -m` puts the current folder first on sys.path: a file there must not shadow a module of the engine.
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
}
"""Environment variables of vLLM and SGLang that the worker's environment may override."""

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
"""Makes vLLM use kernels whose results do not depend on the batch. A value in the worker's environment decides."""

LAUNCHERS = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.launchers.api_server.entry")
"""Modules of vLLM that start the server. The first is deprecated since 0.31; 0.33 has both."""

RUNTIME_ADAPTERS: Mapping[str, str] = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
"""Enables the routes that load adapters; `tracker_worker/gate.py` restricts them to requests with our key."""

KEPT_ADAPTERS = 4
"""Adapters of one base that stay loaded at a time: a checkpoint, its latency reference and two spare ones."""

ACTIVE_ADAPTERS = 2
"""Number of these that requests can use at the same time without moving weights: a checkpoint and its reference."""

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts for --max-lora-rank (vllm/config/lora.py)."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Parameters of one engine start that are not in the settings."""

    checkpoint: Checkpoint
    name: str
    """Random name of the engine, under which a full checkpoint is served."""
    port: int
    on_cpu: bool
    tokenizer: str
    """Folder that holds the checkpoint's tokenizer."""
    lora_rank: int = 0
    """Rank of the adapter; 0 for full checkpoints."""
    adapter: str = ""
    """Random name of the adapter; empty for full checkpoints."""
    swap_args: tuple[str, ...] = ()
    """Additional arguments that weight swaps require."""
    launcher: str = LAUNCHERS[0]
    """Module of vLLM that starts the server."""


def command(launch: Launch, spec: ServeSpec, *, python: str) -> tuple[str, ...]:
    """Return the argument vector that serves the checkpoint as `launch.name`.

    Raises:
        ConfigError: `serve.args` contains a reserved argument, or an adapter has no base model.
    """
    refuse_reserved(spec.args)
    argv = [python, "-m", launch.launcher, "--dtype", spec.dtype, "--generation-config", "vllm"]
    argv += ["--disable-uvicorn-access-log", "--tokenizer", launch.tokenizer]
    if spec.max_model_len is not None:
        argv += ["--max-model-len", str(spec.max_model_len)]
    if spec.gpu_memory_utilization is not None:
        argv += ["--gpu-memory-utilization", str(spec.gpu_memory_utilization)]
    if spec.trust_remote_code:
        argv += ["--trust-remote-code"]
    if launch.on_cpu:
        # For models small enough for a CPU, compiling costs more than it saves. `--no-enforce-eager` re-enables it.
        argv += ["--enforce-eager"]
    if launch.checkpoint.format is CheckpointFormat.LORA:
        argv += ["--max-loras", str(ACTIVE_ADAPTERS)]
    argv += spec.args
    argv += launch.swap_args
    if may_sleep(spec, on_cpu=launch.on_cpu):
        argv += ["--enable-sleep-mode"]
    argv += _model_args(launch)
    return (*argv, "--host", HOST, "--port", str(launch.port))


def environment(
    inherited: Mapping[str, str], *, cache_dir: str, on_cpu: bool, is_batch_invariant: bool = False
) -> dict[str, str]:
    """Return the engine's environment: what is passed on of the inherited one, and our defaults for unset variables.

    Args:
        inherited: environment of the worker.
        cache_dir: folder for compiled kernels, kept between starts.
        on_cpu: whether there is no accelerator.
        is_batch_invariant: whether outputs must not depend on the rest of the batch; ignored on a CPU, where vLLM
            0.32 starts with it and crashes on the first request.
    """
    defaults = {
        **ENGINE_DEFAULTS,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": cache_dir,
        # The default is in TMPDIR, which is new for every start: each start would compile again.
        "TORCHINDUCTOR_CACHE_DIR": f"{cache_dir}/inductor",
    }
    if on_cpu:
        defaults["VLLM_CPU_KVCACHE_SPACE"] = "1"
    not_passed_on = OPENS_MORE | {BATCH_INVARIANT}
    kept = passed_on(inherited, keep=HUB_TOKENS)
    found = defaults | {name: value for name, value in kept.items() if name not in not_passed_on}
    return found | ({BATCH_INVARIANT: "1"} if is_batch_invariant and not on_cpu else {})


def may_sleep(spec: ServeSpec, *, on_cpu: bool) -> bool:
    """Return whether the engine is started with sleep mode, so that it can free its memory; never on a CPU."""
    return spec.between is Between.SLEEP and not on_cpu


def gpus_of(args: tuple[str, ...]) -> int:
    """Return the number of GPUs used by an engine with these arguments of vLLM or SGLang."""
    count = 1
    for names in _PARALLEL:
        values = [value for name, value in _pairs(args) if name.replace("_", "-") in names and value.isdecimal()]
        count *= max(1, int(values[-1])) if values else 1
    return count


def max_lora_rank(rank: int) -> int:
    """Return the maximum rank to configure in an engine for an adapter of `rank`, 0 for full checkpoints."""
    if rank:
        return next(known for known in LORA_RANKS if known >= rank)
    return 0


def refuse_reserved(args: tuple[str, ...], reserved: Mapping[str, str] = RESERVED_ARGS) -> None:
    """Raise ConfigError if `serve.args` has a reserved argument, also abbreviated: argparse accepts `--trust`."""
    for argument in args:
        name = argument.split("=", 1)[0].replace("_", "-")
        meant = [known for known in reserved if len(name) > len("--") and known.startswith(name)]
        if meant:
            raise ConfigError(f"serve.args must not contain {name}", hint=reserved[meant[0]])


def rank_of(adapter_config: Mapping[str, object], *, where: str) -> int:
    """Return the largest rank of an adapter, from PEFT's adapter_config.json.

    Raises:
        CheckpointUnreadable: there is no usable `r`, or the rank exceeds vLLM's maximum.
    """
    pattern = adapter_config.get("rank_pattern")
    extra = list(pattern.values()) if isinstance(pattern, dict) else []
    ranks = [rank for rank in [adapter_config.get("r"), *extra] if isinstance(rank, int)]
    rank = max(ranks, default=0)
    if rank < 1:
        raise CheckpointUnreadable(f"missing rank `r` in {where}", hint="use a LoRA adapter saved by PEFT")
    if rank > LORA_RANKS[-1]:
        raise CheckpointUnreadable(
            f"rank {rank} in {where} exceeds vLLM's maximum {LORA_RANKS[-1]}", hint="merge the adapter into its base"
        )
    return rank


_PARALLEL = (
    ("--tensor-parallel-size", "-tp", "--tp-size", "--tp"),
    ("--pipeline-parallel-size", "-pp", "--pp-size"),
    ("--data-parallel-size", "-dp"),
)


def _pairs(args: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return every argument with the value after its equals sign, else with the next argument."""
    following = (*args[1:], "")  # one element too many if `args` is empty
    return [
        (name, value if equals else after)
        for argument, after in zip(args, following, strict=False)
        for name, equals, value in [argument.partition("=")]
    ]


def _model_args(launch: Launch) -> list[str]:
    checkpoint = launch.checkpoint
    if checkpoint.format is not CheckpointFormat.LORA:
        return ["--model", checkpoint.uri, "--served-model-name", launch.name]
    if checkpoint.base_model is None:
        raise ConfigError(
            f"missing base model of the adapter {checkpoint.uri}",
            hint="set base_model_name_or_path in its adapter_config.json",
        )
    # JSON, because the short form NAME=PATH breaks on a path with a comma.
    adapter = json.dumps({"name": launch.adapter, "path": checkpoint.uri})
    rank = max_lora_rank(launch.lora_rank)
    return [
        *("--model", checkpoint.base_model, "--served-model-name", launch.name),
        *("--enable-lora", "--max-cpu-loras", str(KEPT_ADAPTERS), "--max-lora-rank", str(rank)),
        *("--lora-modules", adapter),
    ]
