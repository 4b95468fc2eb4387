"""Settings that cannot change a score, each group with its reason. Pure.

    counting, neutral = split_arguments(("--quantization", "fp8", "-tp", "2"))
    # ("--quantization", "fp8"), {"tensor-parallel-size": "2"}

Every other setting counts, also an argument of `serve.args` that is not listed here.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.types import EvalPlan


@dataclass(frozen=True, kw_only=True)
class NeutralGroup:
    """Settings that do not separate results, for one reason."""

    what: str
    reason: str
    settings: tuple[str, ...] = ()
    """Names in tracker.toml."""
    arguments: tuple[str, ...] = ()
    """Long names of arguments of vLLM and SGLang in `serve.args`."""


NEUTRAL = (
    NeutralGroup(
        what="Batching",
        reason="Same computation. Rounding may differ, which is noise that `tracker calibrate` measures.",
        settings=("suite.concurrency",),
        arguments=(
            *("max-num-seqs", "max-num-batched-tokens", "max-num-scheduled-tokens", "max-num-partial-prefills"),
            *("long-prefill-token-threshold", "enable-chunked-prefill", "enable-prefix-caching", "scheduling-policy"),
            *("async-scheduling", "stream-interval", "max-running-requests", "max-prefill-tokens"),
            *("chunked-prefill-size", "schedule-policy", "schedule-conservativeness", "disable-radix-cache"),
            "disable-overlap-schedule",
        ),
    ),
    NeutralGroup(
        what="Compilation",
        reason="Same operations, as compiled kernels and graphs or one by one.",
        arguments=(
            *("enforce-eager", "compilation-config", "optimization-level", "cudagraph-capture-sizes"),
            *("cuda-graph-sizes", "max-cudagraph-capture-size", "max-seq-len-to-capture", "disable-cuda-graph"),
            *("disable-cuda-graph-padding", "cuda-graph-max-bs", "cuda-graph-bs", "enable-torch-compile"),
            "torch-compile-max-bs",
        ),
    ),
    NeutralGroup(
        what="Devices",
        reason="Same operations on other or more devices.",
        arguments=(
            *("device", "device-ids", "base-gpu-id", "gpu-id-step", "tensor-parallel-size", "tp-size", "tp"),
            *("pipeline-parallel-size", "pp-size", "pp", "data-parallel-size", "data-parallel-size-local"),
            *("data-parallel-backend", "decode-context-parallel-size", "enable-expert-parallel", "ep-size", "ep"),
            *("expert-parallel-size", "distributed-executor-backend", "disable-custom-all-reduce", "nnodes"),
            *("node-rank", "numa-bind"),
        ),
    ),
    NeutralGroup(
        what="Memory",
        reason="Only the space for weights and cache.",
        settings=("serve.gpu_memory_utilization",),
        arguments=(
            *("gpu-memory-utilization", "device-memory-utilization", "kv-cache-memory-bytes", "swap-space"),
            *("num-gpu-blocks-override", "cpu-offload-gb", "max-parallel-loading-workers"),
            "safetensors-load-strategy",
        ),
    ),
    NeutralGroup(
        what="Paths and addresses",
        reason="Only the place. Content counts: weights and data by digest.",
        settings=("benchmark.data", "serve.python", "serve.port", "serve.base_url", "serve.api_key_env"),
        arguments=(
            *("download-dir", "master-addr", "master-port", "data-parallel-address", "data-parallel-rpc-port"),
            *("dist-init-addr", "nccl-port"),
        ),
    ),
    NeutralGroup(
        what="Logs and metrics",
        reason="Only reported.",
        arguments=(
            *("uvicorn-log-level", "disable-uvicorn-access-log", "disable-log-stats", "enable-log-requests"),
            *("disable-log-requests", "max-log-len", "log-config-file", "aggregate-engine-logging"),
            *("kv-cache-metrics", "cudagraph-metrics", "enable-mfu-metrics", "use-tqdm-on-load", "log-level"),
            *("log-level-http", "log-requests", "log-requests-level", "decode-log-interval", "enable-metrics"),
        ),
    ),
    NeutralGroup(
        what="Time limits and priority",
        reason="Only when and how fast. A request without an answer has no score.",
        settings=(
            *("suite.request_timeout_s", "serve.startup_timeout_s", "serve.idle_timeout_s", "serve.niceness"),
            "serve.only_when",
        ),
        arguments=("watchdog-timeout", "shutdown-timeout", "distributed-timeout-seconds"),
    ),
    NeutralGroup(
        what="Weight swaps", reason="Used only if certified as bit-identical.", settings=("serve.swap", "serve.between")
    ),
)

_ARGUMENTS = frozenset(name for group in NEUTRAL for name in group.arguments)
_SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-dcp": "decode-context-parallel-size",
    "-ep": "enable-expert-parallel",
    "-cc": "compilation-config",
    "-O": "optimization-level",
}
"""Short options of vLLM."""


def is_neutral_argument(name: str) -> bool:
    """Return whether an argument of an engine cannot change a score; `name` with dashes or underscores."""
    return name.replace("_", "-") in _ARGUMENTS


def split_arguments(arguments: Sequence[str]) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Return the arguments that can change a score, as given, and the values of the others by long name."""
    counting: list[str] = []
    neutral: dict[str, str] = {}
    for option, tokens in _options(arguments):
        known = _neutral_name(option)
        if known is None:
            counting += tokens
            continue
        name, value = known
        neutral[name] = " ".join((value, *tokens[1:])).strip() or "true"
    return tuple(counting), neutral


def neutral_values(plan: EvalPlan, benchmarks: Collection[str]) -> Mapping[str, object]:
    """Return the settings of a plan and some of its benchmarks that cannot change a score, by name."""
    _, arguments = split_arguments(plan.serve.args)
    values: dict[str, object] = {f"serve.args --{name}": value for name, value in arguments.items()}
    for name in (name for group in NEUTRAL for name in group.settings):
        owner, _, field = name.partition(".")
        if owner == "benchmark":
            values[name] = {one.name: one.data for one in plan.suite.benchmarks if one.name in benchmarks}
        else:
            values[name] = getattr(plan.serve if owner == "serve" else plan.suite, field)
    return values


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option with its tokens: itself, and the values until the next option."""
    tokens: list[str] = []
    for argument in arguments:
        is_option = argument.startswith("-") and not argument[1:2].isdigit()  # -1 is a value
        if tokens and is_option:
            yield tokens[0], tokens
            tokens = []
        tokens.append(argument)
    if tokens:
        yield tokens[0], tokens


def _neutral_name(option: str) -> tuple[str, str] | None:
    """Return the long name and the value within the token of a neutral option; None: it can change a score."""
    given, _, value = option.partition("=")
    if given.startswith("-O"):  # -O3, -O.mode=3
        return _SHORT["-O"], (value or given[2:])
    head, dot, key = given.partition(".")
    name = _SHORT.get(head, head.removeprefix("--").replace("_", "-") if head.startswith("--") else "")
    if name.removeprefix("no-") in _ARGUMENTS and name not in _ARGUMENTS:
        return name.removeprefix("no-"), "false"
    if name not in _ARGUMENTS:
        return None
    return f"{name}{dot}{key}", value
