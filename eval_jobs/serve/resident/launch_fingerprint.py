"""Fingerprint of an engine's process: two checkpoints with the same fingerprint may share an engine. Pure."""

from collections.abc import Mapping
from dataclasses import asdict

from eval_jobs.identity import content_hash
from eval_jobs.serve.process.launch import max_lora_rank, may_sleep
from eval_jobs.serve.resident.order import Order

NOT_OF_THE_PROCESS = frozenset(
    {"startup_timeout_s", "idle_timeout_s", "between", "only_when", "port", "base_url", "model", "api_key_env"}
)
"""Settings of `ServeSpec` that do not affect the process; the port is compared separately."""

READ_BY_ENGINES = (
    *("VLLM_", "SGLANG_", "SGL_", "TORCH", "PYTORCH_", "TRITON_", "XLA_"),
    *("CUDA_", "NVIDIA_", "NCCL_", "HIP_", "ROCR_", "ROCM_", "GPU_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "ATEN_", "LD_", "HF_", "TRANSFORMERS_"),
)
"""Prefixes of environment variables that can change what an engine computes."""

WHERE_CACHES_LIE = frozenset({"VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})

ENVIRONMENT = "the environment"
SHOWN_CHARS = 120

LaunchFingerprint = Mapping[str, str]
"""Everything that affects the process, by a readable name."""


def launch_fingerprint(order: Order, environment: Mapping[str, str]) -> LaunchFingerprint:
    """Return the fingerprint of the process that a cold start on `order` would create.

    Every setting of `ServeSpec` counts, new ones too, except those in `NOT_OF_THE_PROCESS`.
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
    """Return the first difference between two fingerprints, in words; "" if there is none."""
    for name, now in wanted.items():
        before = started.get(name, "")
        if before != now and name == ENVIRONMENT:
            return f"{name} changed since the engine started"
        if before != now:
            return f"{name} is {_shown(now)}, but the engine was started with {_shown(before)}"
    return ""


def _shown(value: str) -> str:
    if not value:
        return '""'
    if len(value) <= SHOWN_CHARS:
        return value
    return "(too long to show)"
