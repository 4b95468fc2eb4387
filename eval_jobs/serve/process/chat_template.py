"""Checks before an engine starts that a checkpoint's chat template ends: an engine renders it for every request."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from eval_jobs import limits
from eval_jobs.errors import TemplateUnbounded
from eval_jobs.host.bounded import TooLarge, parse_json, read_text
from eval_jobs.host.secrets import without_secrets
from eval_jobs.serve.process.template_trial import OUT_OF_MEMORY

_TRIAL_TIMEOUT_S = 30.0
_WHY = {-signal.SIGXCPU: "takes too long", OUT_OF_MEMORY: "takes too much memory"}


def demand_bounded_template(tokenizer: Path) -> None:
    """Render the chat templates in the folder of a tokenizer, each distinct one once in a process.

    Raises:
        TemplateUnbounded: one takes too long or too much memory. Other faults are left to the engine, which names them.
    """
    if why := _first_fault(tokenizer):
        hint = "correct it, in chat_template.jinja or tokenizer_config.json, and save it with the next checkpoint"
        raise TemplateUnbounded(f"the chat template {why}: {tokenizer}", hint=hint)


def _first_fault(tokenizer: Path) -> str:
    try:
        return next(filter(None, map(_why_unbounded, _templates(tokenizer))), "")
    except TooLarge as error:
        return str(error)
    except (OSError, ValueError):
        return ""


def _templates(tokenizer: Path) -> Iterator[str]:
    """Yield the templates that an engine may use: the file's comes before the configuration's."""
    file = tokenizer / "chat_template.jinja"
    if file.exists():
        yield read_text(file, limits.TEMPLATE)
        return
    config = parse_json(read_text(tokenizer / "tokenizer_config.json", limits.DOCUMENT))
    if not isinstance(config, dict):
        return
    found = config.get("chat_template")
    if not isinstance(found, list):
        found = [{"template": found}]
    for one in found:
        if isinstance(one, dict) and isinstance(one.get("template"), str):
            yield one["template"]


@lru_cache(maxsize=64)
def _why_unbounded(template: str) -> str:
    """Return what is wrong with a template, "" if nothing is."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "eval_jobs.serve.process.template_trial"],
            input=template.encode(errors="replace"),
            capture_output=True,
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
            env=without_secrets(os.environ),
        )
    except (OSError, subprocess.TimeoutExpired):  # the processor was busy with other processes: it proves nothing
        return ""
    return _WHY.get(done.returncode, "")
