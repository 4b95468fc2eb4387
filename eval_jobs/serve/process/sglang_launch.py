"""Command line and environment that start SGLang for one checkpoint. Pure.

    argv = command(launch, spec, python="/opt/sglang/bin/python")
    env = environment(os.environ)

Order of the arguments as in `launch`: our defaults, the user's `serve.args`, then those that identify the engine.
"""

from collections.abc import Mapping

from eval_jobs.errors import ConfigError
from eval_jobs.host.secrets import HUB_TOKENS, passed_on
from eval_jobs.serve.process.launch import ENGINE_DEFAULTS, HOST, RESERVED_BY_ALL, Launch, refuse_reserved
from eval_jobs.types import CheckpointFormat, ServeSpec

RESERVED_ARGS: Mapping[str, str] = {
    "--model-path": "remove it: the model is always the checkpoint",
    "--tokenizer-path": "remove it: the tokenizer is always that of the checkpoint",
    **RESERVED_BY_ALL,
    "--weight-version": "remove it: the weights are identified by the checkpoint's digest",
    "--admin-api-key": "remove it: a key on the command line is visible to all users, and none is needed",
    "--context-length": "set serve.max_model_len",
    "--mem-fraction-static": "set serve.gpu_memory_utilization",
    "--enable-lora": "remove it: only full checkpoints can be served with SGLang",
    "--lora-paths": "remove it: only full checkpoints can be served with SGLang",
    "--dp-size": "remove it: data parallel replicas cannot be checked one by one",
    "--data-parallel-size": "remove it: data parallel replicas cannot be checked one by one",
}

DETERMINISTIC = "--enable-deterministic-inference"
"""Option of SGLang: outputs do not depend on the rest of the batch."""


def command(launch: Launch, spec: ServeSpec, *, python: str) -> tuple[str, ...]:
    """Return the argument vector that serves the checkpoint as `launch.name`.

    Raises:
        ConfigError: the checkpoint is an adapter, or `serve.args` contains a reserved argument.
    """
    checkpoint = launch.checkpoint
    if checkpoint.format is not CheckpointFormat.FULL:
        raise ConfigError(
            f"{checkpoint.source_uri} is an adapter, but SGLang serves only full checkpoints",
            hint='merge adapters into their base, or set serve.engine = "vllm"',
        )
    refuse_reserved(spec.args, RESERVED_ARGS)
    argv = [python, "-m", "sglang.launch_server", "--dtype", spec.dtype]
    # Otherwise, temperature and others that a request omits come from the checkpoint's generation_config.json.
    argv += ["--sampling-defaults", "openai", "--tokenizer-path", launch.tokenizer]
    if spec.max_model_len is not None:
        argv += ["--context-length", str(spec.max_model_len)]
    if spec.gpu_memory_utilization is not None:
        argv += ["--mem-fraction-static", str(spec.gpu_memory_utilization)]
    if spec.trust_remote_code:
        argv += ["--trust-remote-code"]
    argv += spec.args
    argv += ["--model-path", checkpoint.uri, "--served-model-name", launch.name]
    argv += ["--weight-version", checkpoint.digest]
    return (*argv, "--host", HOST, "--port", str(launch.port))


def sglang_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the engine's environment: what is passed on of the inherited one, and our defaults for unset variables."""
    return {**ENGINE_DEFAULTS, **passed_on(inherited, keep=HUB_TOKENS)}
