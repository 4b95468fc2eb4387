"""Keeps keys and passwords from processes that do not need them, and out of all stored or shown text. Pure.

env = passed_on(os.environ, keep=("GATEWAY_KEY",))           # for a child process
line = masked(line, held_secrets(os.environ))                # a server may echo the key that was sent
"""

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

MASK = "***"
MIN_CHARS = 8
"""Shorter values are not masked: they may be ordinary words, such as `none` or `EMPTY`."""

HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_SDK_TOKEN", "MODELSCOPE_API_TOKEN")
"""Tokens for downloading models and data."""

FURTHER_VARIABLES = "TRACKER_PASS_ENV"
"""Names further variables for child processes, separated by commas. It belongs to a machine, so it is no setting."""

_SECRET = re.compile(
    r"passw(or)?d|passphrase|(^|_)(secrets?|token|credentials?|api_?key|key|pat|jwt)(_|$)|_pwd$|token$", re.IGNORECASE
)
_IN_URL = re.compile(r"://[^/\s@:]*:([^/\s@]+)@")
"""A password in an address."""
_PROXY = re.compile(r"(https?|ftp|all|no)_proxy", re.IGNORECASE)
"""May hold a password: downloads need it."""
_PASSED_ON = re.compile(
    r"PATH|PWD|HOME|USER|LOGNAME|SHELL|TERM|COLORTERM|COLUMNS|LINES|LANG|LANGUAGE|TZ|TMPDIR|TEMP|TMP|VIRTUAL_ENV"
    r"|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|CPATH|LIBRARY_PATH|MAX_JOBS|NO_COLOR|FORCE_COLOR|DO_NOT_TRACK|NLTK_DATA"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE"
    r"|(PYTHON|CUDA|TORCH|MPL).*|(LC|LD|DYLD|CONDA|MAMBA|XDG|MALLOC|JE|GLIBC|COVERAGE|TQDM|OMP|GOMP|KMP|MKL|OPENBLAS"
    r"|NUMEXPR|NUMBA|CUBLAS|CUDNN|NVIDIA|NVTE|NVCC|NCCL|NVSHMEM|UCX|FI|IBV|GLOO|ROCM|ROCR|HIP|HSA|AMD|MIOPEN|RCCL|AITER"
    r"|GPU|ASCEND|HCCL|HABANA|PT|NEURON|TPU|XLA|ONEAPI|ZE|SYCL|CCL|RAY|VLLM|SGLANG|SGL|FLASHINFER|FLASH|DG|LMCACHE"
    r"|PYTORCH|TRITON|SAFETENSORS|TF|JAX|DS|DEEPSPEED|TOKENIZERS|TRANSFORMERS|HF|HUGGINGFACE|DATASETS|MODELSCOPE"
    r"|EVALSCOPE)_.*"
)
"""Variables that start and tune programs, Python, accelerators, engines and evaluators."""
_PLACE = re.compile(r"_(path|file|dir|url|uri)$", re.IGNORECASE)
_REMEMBERED: set[str] = set()
"""Secrets read from a file or removed from the environment. Global, because logging is process-wide."""


def is_secret(variable: str) -> bool:
    """Return whether the name of an environment variable indicates a key, a token or a password."""
    return _SECRET.search(variable) is not None


def passed_on(environment: Mapping[str, str], *, keep: Iterable[str] = ()) -> dict[str, str]:
    """Return what a child process gets: known variables without a secret, those in `keep`, and what the user names.

    Others may hold a key under any name, and the child runs code of engines, evaluators or data sets.
    """
    named = map(str.strip, environment.get(FURTHER_VARIABLES, "").split(","))
    kept = frozenset((*keep, *named)) & environment.keys()
    kept |= {name for name in environment if _PROXY.fullmatch(name)}
    known = {name: value for name, value in without_secrets(environment).items() if _PASSED_ON.fullmatch(name)}
    return known | {name: environment[name] for name in kept}


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without keys, tokens and passwords, for a command that the user wrote.

    It may need any variable of the user's shell, such as AWS_PROFILE, as it has when the user calls it.
    """
    return {name: value for name, value in environment.items() if not (is_secret(name) or _IN_URL.search(value))}


def register_secret(secret: str) -> str:
    """Return `secret`, and include it in `held_secrets` from now on."""
    if secret:
        _REMEMBERED.add(secret)
    return secret


def held_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values that no text may show: of variables with secret names, and of `register_secret`."""
    values = {value for name, value in environment.items() if is_secret(name) and not _PLACE.search(name)}
    user, password = (environment.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    if password:  # as sent over HTTP
        values.add(base64.b64encode(f"{user}:{password}".encode()).decode())
    in_urls = {password for value in environment.values() for password in _IN_URL.findall(value)}
    return frozenset(values | in_urls | _REMEMBERED)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with `***` in place of each secret, also if it is encoded for a URL or JSON."""
    forms = {
        form
        for secret in secrets
        if len(secret) >= MIN_CHARS
        for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
    }
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text
