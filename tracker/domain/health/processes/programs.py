"""What a program is, as its name and arguments tell: a launcher, a tool, one that serves a model, or Python. Pure."""

import re

from tracker.domain.health.processes.seen import SeenProcess

_TOOLS = frozenset(
    "sh bash dash zsh fish ksh tmux screen sshd sudo su less more tail head grep rg cat cp mv rsync find ls "  # noqa: SIM905 - readable
    "du vi vim nvim nano emacs code htop top watch git make pip uv tensorboard jupyter-lab jupyter-noteboo "
    "rclone aws s5cmd gsutil hf huggingface-cli tar zip gzip pigz zstd sha256sum md5sum nginx".split()
)
"""Programs that may name the output folder and do not train."""
_LAUNCHERS = re.compile(
    r"(?:^|/)(?:torchrun|accelerate|deepspeed|srun|mpirun|mpiexec|composer|swift|llamafactory-cli|tune)$"
    r"|^(?:torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch|deepspeed\.launcher\.(?:runner|launch))$"
    r"|/(?:deepspeed/launcher/(?:runner|launch)|accelerate/commands/launch|torch/distributed/run)\.py$"
)
_TRAINERS = re.compile(r"(?:^|/)(?:llamafactory-cli|tune)$")
"""Launchers that train in their own process with a single device."""
_OURS = re.compile(r"(?:^|/)tracker$|^(?:tracker|eval_jobs|dashboards)\.")
_SERVING = re.compile(
    r"^(?:vllm|sglang|gradio|streamlit|lm_eval|evalscope|lmdeploy|tensorboard|http\.server)(?:\.|$)"
    r"|(?:^|/)(?:vllm|sglang|gradio|streamlit|lm[_-]eval|evalscope|lmdeploy|ollama|text-generation-\w+|tritonserver)$"
    r"|(?:^|/)llama-(?:server|cli|quantize|bench|perplexity|imatrix|run|gguf-\w+|export-lora)$"
    r"|(?:^|/)(?:convert[_-]|merge)[\w.-]*\.py$"
)
"""Servers, benchmarks and converters of models, as programs, modules and scripts."""
_PYTHON = re.compile(r"^(?:python[\d.]*|torchrun|accelerate|deepspeed|composer|swift|llamafactory-cli|tune)$")


def is_launcher(process: SeenProcess) -> bool:
    """Return whether a process only starts others."""
    return any(_LAUNCHERS.search(argument) for argument in process.arguments[:4])


def may_train(launcher: SeenProcess) -> bool:
    """Return whether a launcher trains itself unless it starts others."""
    return any(_TRAINERS.search(argument) for argument in launcher.arguments[:4])


def is_tool(process: SeenProcess) -> bool:
    """Return whether a process is a program that never trains, or one of the tracker."""
    return process.name in _TOOLS or any(_OURS.search(argument) for argument in process.arguments[:3])


def serves(process: SeenProcess) -> bool:
    """Return whether a process serves, measures or converts a model."""
    return any(_SERVING.search(argument) for argument in process.arguments[:3])


def is_python(process: SeenProcess) -> bool:
    """Return whether a process runs Python."""
    program = process.arguments[0] if process.arguments else ""
    return any(_PYTHON.match(name) for name in (process.name, program.rpartition("/")[2]))
