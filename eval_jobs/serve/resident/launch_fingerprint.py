"""What shapes an engine's process: two checkpoints with the same fingerprint may share an engine. Pure."""

from collections.abc import Mapping
from dataclasses import asdict

from eval_jobs.identity import content_hash
from eval_jobs.serve.process.launch import max_lora_rank, may_sleep
from eval_jobs.serve.resident.order import Order

NOT_OF_THE_PROCESS = frozenset(
    {"startup_timeout_s", "idle_timeout_s", "between", "only_when", "port", "base_url", "model", "api_key_env"}
)
"""Settings of `ServeSpec` that an engine may be used with whatever they say; the port is compared apart."""

READ_BY_ENGINES = (
    *(
        "VLLM_",
        "SGLANG_",
        "SGL_",
        "TORCH",
        "PYTORCH_",
        "CUDA_",
        "NVIDIA_",
        "NCCL_",
        "HIP_",
        "ROCR_",
        "ROCM_",
        "GPU_",
        "XLA_",
        "TRITON_",
    ),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "ATEN_", "LD_", "HF_", "TRANSFORMERS_"),
)
"""How variables begin that can change what an engine computes."""

WHERE_CACHES_LIE = frozenset({"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})

ENVIRONMENT = "the environment"
SHOWN_CHARS = 120

LaunchFingerprint = Mapping[str, str]
"""Everything that shapes the process, by its name for a person."""


def launch_fingerprint(order: Order, environment: Mapping[str, str]) -> LaunchFingerprint:
    """Return the fingerprint of the process that a cold start on `order` would give.

    Every setting of `ServeSpec` counts, new ones too, but for those that `NOT_OF_THE_PROCESS` lists.
    """
    rank = order.adapter.rank if order.adapter else 0
    read = {name: value for name, value in environment.items() if name.startswith(READ_BY_ENGINES)}
    model = {
        "the checkpoint format": order.checkpoint.format.value,
        "the base model": str(order.checkpoint.base_model or "") if order.adapter else "",
        "the maximum adapter rank": str(max_lora_rank(rank)),
    }
    settings = {f"serve.{name}": str(v) for name, v in asdict(order.spec).items() if name not in NOT_OF_THE_PROCESS}
    found = {
        "serve.python": order.python,
        "sleep mode": str(may_sleep(order.spec, on_cpu=order.on_cpu)),
        ENVIRONMENT: content_hash({name: read[name] for name in read if name not in WHERE_CACHES_LIE}),
    }
    return model | settings | found


def difference(started: LaunchFingerprint, wanted: LaunchFingerprint) -> str:
    """Return the first thing in which two fingerprints differ, in words; "" when there is none."""
    for name, now in wanted.items():
        before = started.get(name, "")
        if before != now and name == ENVIRONMENT:
            return f"{name} changed since the engine started"
        if before != now:
            return f"{name} is {_shown(now)}, but the engine was started with {_shown(before)}"
    return ""


# --- private


def _shown(value: str) -> str:
    if not value:
        return '""'
    if len(value) <= SHOWN_CHARS:
        return value
    return "(too long to show)"
