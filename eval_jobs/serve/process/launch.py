"""Which command and environment start vLLM for one checkpoint. Pure.

    launch = Launch(checkpoint=checkpoint, name="engine-1f9c2b7a", port=20123, ...)
    argv = command(launch, spec, python=sys.executable)
    env = environment(os.environ, cache_dir=..., on_cpu=True)

The server is known by a random name, so that an answer at the port proves which process gave it.
Order of the arguments: our defaults, then the user's `serve.args` (the last one wins), then what identity rests on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from eval_jobs.errors import CheckpointUnreadable, ConfigError
from eval_jobs.host.secrets import HUB_TOKENS, without_secrets
from eval_jobs.types import Between, Checkpoint, CheckpointFormat, ServeSpec

HOST = "127.0.0.1"

RESERVED_ARGS: Mapping[str, str] = {
    "--config": "write its arguments into serve.args: a config file could override the tracker's settings",
    "--model": "remove it: the model is always the checkpoint",
    "--host": "remove it: the engine listens on this machine only",
    "--port": "set serve.port",
    "--uds": "remove it: the engine listens on a port",
    "--served-model-name": "remove it: the engine serves under a random model name",
    "--lora-modules": "remove it: the tracker loads adapter checkpoints itself",
    "--enable-lora": "remove it: the tracker sets it for adapters, which never share an engine with a full model",
    "--max-cpu-loras": "remove it: the tracker decides how many adapters stay loaded",
    "--worker-extension-cls": "remove it: the tracker sets its own extension to swap weights",
    "--enable-sleep-mode": "set serve.between",
    "--api-key": "remove it: a key on the command line is visible to all users of the machine, and none is needed",
    "--hf-token": "set HF_TOKEN: a token on the command line is visible to all users of the machine",
    "--trust-remote-code": "set serve.trust_remote_code",
    "--dtype": "set serve.dtype",
    "--max-model-len": "set serve.max_model_len",
}

OPENS_MORE = frozenset(
    {"VLLM_API_KEY", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "VLLM_ALLOW_INSECURE_SERIALIZATION"}
)
"""Not passed on: a key locks us out of our own engine, the others add routes that change or run what is served."""

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
"""Has vLLM choose kernels whose results do not depend on the batch. The worker's own variable decides, if it is set."""

RUNTIME_ADAPTERS: Mapping[str, str] = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
"""Opens the routes that load adapters, which the gate of the swaps keeps for us."""

KEPT_ADAPTERS = 4
"""Adapters of one base that stay loaded at a time: a checkpoint, its latency reference and two to spare."""

ACTIVE_ADAPTERS = 2
"""Of these, those that requests may use at one moment without moving weights: a checkpoint and its reference."""

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM accepts as --max-lora-rank (vllm/config/lora.py)."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything about one start that the settings do not say."""

    checkpoint: Checkpoint
    name: str
    """The random name of the engine, under which a full checkpoint is served."""
    port: int
    on_cpu: bool
    tokenizer: str
    """Folder that holds the checkpoint's tokenizer."""
    lora_rank: int = 0
    """Of an adapter; 0 for full checkpoints."""
    adapter: str = ""
    """The random name of an adapter; empty for full checkpoints."""
    swap_args: tuple[str, ...] = ()
    """What an engine needs whose weights are to be swapped."""


def command(launch: Launch, spec: ServeSpec, *, python: str) -> tuple[str, ...]:
    """Return the argument vector that serves the checkpoint as `launch.name`.

    Raises:
        ConfigError: `serve.args` holds something that is decided elsewhere, or an adapter has no base model.
    """
    refuse_reserved(spec.args)
    argv = [python, "-m", "vllm.entrypoints.openai.api_server", "--dtype", spec.dtype, "--generation-config", "vllm"]
    argv += ["--disable-uvicorn-access-log", "--tokenizer", launch.tokenizer]
    if spec.max_model_len is not None:
        argv += ["--max-model-len", str(spec.max_model_len)]
    if spec.gpu_memory_utilization is not None:
        argv += ["--gpu-memory-utilization", str(spec.gpu_memory_utilization)]
    if spec.trust_remote_code:
        argv += ["--trust-remote-code"]
    if launch.on_cpu:
        # Compiling takes longer than it saves at the sizes that run on a CPU. `--no-enforce-eager` turns it on again.
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
    """Return the engine's environment: the inherited one without our keys, and our defaults where it says nothing.

    Args:
        inherited: the worker's.
        cache_dir: folder that is kept between starts, for compiled kernels.
        on_cpu: whether there is no accelerator.
        is_batch_invariant: whether answers are not to depend on what else is in the batch; never on a CPU, where vLLM
            0.32 starts with it and dies of the first request.
    """
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # Without it a wrong path is looked up on the Hub, and the error speaks of repositories.
        "HF_HUB_OFFLINE": "1",
        "VLLM_CACHE_ROOT": cache_dir,
        # By default in TMPDIR, which every start gets anew: each one would compile again.
        "TORCHINDUCTOR_CACHE_DIR": f"{cache_dir}/inductor",
        # `python -m` puts the current folder first on sys.path: a file there must not shadow a module of vLLM.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if on_cpu:
        defaults["VLLM_CPU_KVCACHE_SPACE"] = "1"
    not_passed_on = OPENS_MORE | {BATCH_INVARIANT}
    kept = without_secrets(inherited, keep=HUB_TOKENS)
    found = defaults | {name: value for name, value in kept.items() if name not in not_passed_on}
    return found | ({BATCH_INVARIANT: "1"} if is_batch_invariant and not on_cpu else {})


def may_sleep(spec: ServeSpec, *, on_cpu: bool) -> bool:
    """Return whether the engine is started so that it can give its memory back; no engine can on a CPU."""
    return spec.between is Between.SLEEP and not on_cpu


def gpus_of(args: tuple[str, ...]) -> int:
    """Return on how many GPUs an engine with these arguments of vLLM or SGLang computes."""
    count = 1
    for names in _PARALLEL:
        values = [value for name, value in _pairs(args) if name.replace("_", "-") in names and value.isdecimal()]
        count *= max(1, int(values[-1])) if values else 1
    return count


def max_lora_rank(rank: int) -> int:
    """Return the rank that an engine for an adapter of `rank` makes room for, 0 for full checkpoints."""
    if rank:
        return next(known for known in LORA_RANKS if known >= rank)
    return 0


def refuse_reserved(args: tuple[str, ...]) -> None:
    """Raise ConfigError when `serve.args` sets what is decided elsewhere; argparse takes `--trust` for it too."""
    for argument in args:
        name = argument.split("=", 1)[0].replace("_", "-")
        meant = [known for known in RESERVED_ARGS if len(name) > len("--") and known.startswith(name)]
        if meant:
            raise ConfigError(f"serve.args must not contain {name}", hint=RESERVED_ARGS[meant[0]])


def rank_of(adapter_config: Mapping[str, object], *, where: str) -> int:
    """Return the largest rank of an adapter, as PEFT writes it in adapter_config.json.

    Raises:
        CheckpointUnreadable: there is no usable `r`, or it is above what vLLM serves.
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


# --- private

_PARALLEL = (
    ("--tensor-parallel-size", "-tp", "--tp-size", "--tp"),
    ("--pipeline-parallel-size", "-pp", "--pp-size"),
    ("--data-parallel-size", "-dp"),
)


def _pairs(args: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return every argument with what is behind its equals sign, or with the next one."""
    following = (*args[1:], "")  # one too many where there are no arguments at all
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
