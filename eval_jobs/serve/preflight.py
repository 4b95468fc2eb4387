"""Reads what can be known before an engine starts: its environment, the devices and the model. Imports no engine.

environment = read_environment(spec)      # 0.1 s: versions are read from files
model = read_model(folder, base_model)
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from eval_jobs import limits
from eval_jobs.errors import ConfigError, EndpointUnreachable
from eval_jobs.host.bounded.files import read_bytes
from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.host.gpus import VISIBLE_DEVICES, Gpu, read_gpus, visible_gpus
from eval_jobs.host.loopback import LOOPBACK
from eval_jobs.host.secrets import passed_on
from eval_jobs.records.preflight import EngineEnvironment, ModelFacts
from eval_jobs.serve.process.checkpoint_files import has_tokenizer
from eval_jobs.serve.process.launch import gpus_of
from eval_jobs.serve.resident.order import interpreter, runs_on_cpu
from eval_jobs.types import ServeSpec

FIND_TIMEOUT_S = 4.0
ENDPOINT_TIMEOUT_S = 2.0


def read_environment(spec: ServeSpec) -> EngineEnvironment:
    """Return what the environment of `serve.python` offers.

    Raises:
        ConfigError: `serve.python` is not a usable Python interpreter.
    """
    python, on_cpu = interpreter(spec.python), runs_on_cpu()
    folders = _package_folders(python, (spec.engine.value, "torch"))
    gpus = () if on_cpu else _gpus()[: gpus_of(spec.args)]
    return EngineEnvironment(
        python=python,
        version=_version(folders, spec.engine.value),
        torch=_version(folders, "torch"),
        on_cpu=on_cpu,
        memory_bytes=psutil.virtual_memory().total if on_cpu else _memory_bytes(gpus),
        free_share=_free_share(gpus),
        head_sizes=_head_sizes(folders.get("vllm", ())) if on_cpu else (),
        compute_capability=min((gpu.compute_capability for gpu in gpus if gpu.compute_capability), default=None),
    )


def check_remote_engine(spec: ServeSpec) -> None:
    """Query the models of a remote engine once.

    Raises:
        ConfigError: the URL is invalid, or the server rejects the request.
        EndpointUnreachable: it does not respond, or fails.
    """
    url, key = spec.base_url.rstrip("/"), os.environ.get(spec.api_key_env, "")
    try:
        reply = httpx.get(
            f"{url}/models",
            headers={"Authorization": f"Bearer {key or 'none'}"},
            timeout=ENDPOINT_TIMEOUT_S,
            trust_env=urlsplit(url).hostname not in LOOPBACK,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        hint = "check that the server is running and reachable from this machine"
        raise EndpointUnreachable(f"no response from {url}: {error}", hint=hint) from error
    if reply.is_server_error:
        raise EndpointUnreachable(f"{url}/models returned HTTP {reply.status_code}", hint="see the log of that server")
    if reply.is_client_error:
        hint = "check that serve.base_url ends in /v1, and the key in the variable named by serve.api_key_env"
        raise ConfigError(f"{url}/models returned HTTP {reply.status_code}", hint=hint)


def local_model(name: str) -> Path | None:
    """Return the folder of a model, given its path or its name on the Hugging Face hub; None: not on this machine."""
    if Path(name).is_absolute():
        return Path(name) if Path(name).is_dir() else None
    from huggingface_hub import try_to_load_from_cache  # here: takes 0.3 s, and most models have a path

    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no valid name
        return None
    return Path(config).parent if isinstance(config, str) else None


def read_model(folder: Path, *, weights_bytes: int, base: Path | None = None) -> ModelFacts:
    """Return the facts about a complete checkpoint, as far as its files are readable.

    `base`: base model of an adapter, or folder with the configuration of a checkpoint without one.
    """
    model = folder if base is None else base
    tokenizer = _tokenizer_in(folder, model)
    weights_bytes += sum(path.stat().st_size for path in model.glob("*.safetensors") if model != folder)
    config = _document(model / "config.json")
    text = config.get("text_config")
    config = {**config, **(text if isinstance(text, dict) else {})}
    return ModelFacts(
        where=str(folder),
        weights_bytes=weights_bytes,
        dtype=str(config.get("dtype") or config.get("torch_dtype") or ""),
        max_length=_max_length(config),
        tokenizer=tokenizer,
        has_chat_template=tokenizer != "" and _has_chat_template(Path(tokenizer)),
        tokenizer_above="" if tokenizer else _tokenizer_in(*folder.parents[:2]),
        head_size=_head_size(config),
    )


def _tokenizer_in(*places: Path) -> str:
    return next((str(place) for place in places if has_tokenizer(place)), "")


_FIND = """
import importlib.util, json, sys
found = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: list(spec.submodule_search_locations or []) for name, spec in found.items() if spec}))
"""
_VERSION = re.compile(r"^_*version_*\b[^'\"\n]*['\"]([^'\"]+)['\"]", re.MULTILINE)
_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
"""Keys of config.json from which vLLM derives the maximum length (vllm/config/model.py)."""
_CPU_ATTENTION = "v1/attention/backends/cpu_attn.py"
_HEAD_SIZES = re.compile(r"def get_supported_head_sizes\(cls\)[^\n]*\n\s+return \[([\d, ]+)\]")
_UNLISTED_HEAD_SIZE = 48
"""vLLM 0.32 does not list it, but its kernels compute it; every other size outside the list fails in them."""


def _package_folders(python: str, names: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the folders of installed packages; -P, as for an engine, because a local folder is not a package."""
    try:
        done = subprocess.run(
            [python, "-P", "-c", _FIND, *names],
            capture_output=True,
            text=True,
            timeout=FIND_TIMEOUT_S,
            check=True,
            env=passed_on(os.environ),
        )
        found: dict[str, list[str]] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            reason = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise ConfigError(
            f"serve.python does not run as a Python interpreter: {python}: {reason}",
            hint="set it to the python of the environment with the engine, such as /envs/vllm/bin/python",
        ) from error
    return found


def _version(folders: Mapping[str, list[str]], package: str) -> str:
    for folder in folders.get(package, ()):
        for name in ("_version.py", "version.py"):
            path = Path(folder) / name
            found = _VERSION.search(path.read_text(encoding="utf-8")) if path.is_file() else None
            if found:
                return found.group(1)
        return "unknown"
    return ""


def _head_sizes(folders: Sequence[str]) -> tuple[int, ...]:
    """Return the sizes that vLLM's attention on a CPU lists in its own source; () if this version has no such list."""
    for path in (Path(folder) / _CPU_ATTENTION for folder in folders):
        found = _HEAD_SIZES.search(path.read_text(encoding="utf-8")) if path.is_file() else None
        if found:
            return tuple(sorted({_UNLISTED_HEAD_SIZE, *map(int, found.group(1).split(","))}))
    return ()


def _head_size(config: Mapping[str, object]) -> int | None:
    """Return it as vLLM derives it (vllm/transformers_utils/model_arch_config_convertor.py); None with latent heads."""
    if config.get("kv_lora_rank"):
        return None
    width = config.get("hidden_size", config.get("n_embd"))
    heads = config.get("num_attention_heads", config.get("n_head"))
    if not isinstance(width, int) or not isinstance(heads, int) or heads < 1:
        return None
    stated = config.get("head_dim")
    return stated if isinstance(stated, int) and stated > 0 else width // heads


def _gpus() -> tuple[Gpu, ...]:
    try:
        return visible_gpus(read_gpus(), os.environ.get(VISIBLE_DEVICES))
    except ConfigError:  # no NVIDIA tools, as with GPUs of other vendors
        return ()


def _memory_bytes(gpus: tuple[Gpu, ...]) -> int | None:
    known = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes is not None]
    if gpus and len(known) == len(gpus):
        return sum(known)
    return None


def _free_share(gpus: tuple[Gpu, ...]) -> float | None:
    known = [gpu.free_bytes / gpu.memory_bytes for gpu in gpus if gpu.free_bytes is not None and gpu.memory_bytes]
    return min(known, default=None)


def _max_length(config: Mapping[str, object]) -> int | None:
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.get(key)
        if isinstance(scaling, dict) and scaling.get("rope_type", scaling.get("type", "default")) != "default":
            return None
    lengths = [value for key in _LENGTHS if isinstance(value := config.get(key), int)]
    return min(lengths, default=None)


def _has_chat_template(tokenizer: Path) -> bool:
    names = ("chat_template.jinja", "chat_template.json", "additional_chat_templates")
    if any((tokenizer / name).exists() for name in names):
        return True
    return bool(_document(tokenizer / "tokenizer_config.json").get("chat_template"))


def _document(path: Path) -> dict[str, object]:
    try:
        found = parse_json(read_bytes(path, limits.DOCUMENT))
    except (OSError, ValueError):  # the check of the checkpoint itself reports it
        return {}
    return found if isinstance(found, dict) else {}
