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
from eval_jobs.host.bounded.files import text_of
from eval_jobs.host.bounded.json_text import TooLarge, parse_json
from eval_jobs.host.secrets import passed_on

_HINT = "correct it, in chat_template.jinja or tokenizer_config.json, and save it with the next checkpoint"
_TIMEOUT_S = 30.0
_OUT_OF_MEMORY = 3
_WHY = {-signal.SIGXCPU: "takes too long", _OUT_OF_MEMORY: "takes too much memory"}
_TRIAL = f"""
import re, resource, sys
for kind, most in (("CORE", 0), ("CPU", {limits.TEMPLATE_TIME.most}), ("AS", {limits.TEMPLATE_MEMORY.most})):
    kind = getattr(resource, "RLIMIT_" + kind)
    resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
from jinja2.sandbox import ImmutableSandboxedEnvironment
options = dict(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
template = re.sub(r"{{%-?\\s*(end)?generation\\s*-?%}}", "", sys.stdin.read())  # a tag of transformers, for training
messages = [dict(role="user", content="How many legs do two spiders have? " * 10)]
try:
    ImmutableSandboxedEnvironment(**options).from_string(template).render(
        messages=messages, add_generation_prompt=True, bos_token="", eos_token="", strftime_now=str
    )
except MemoryError:
    sys.exit({_OUT_OF_MEMORY})
except Exception:  # also of raise_exception: the engine reports it
    pass
"""


def demand_bounded_template(tokenizer: Path) -> None:
    """Render the chat templates in the folder of a tokenizer, each distinct one once in a process.

    Raises:
        TemplateUnbounded: one takes too long or too much memory. Other faults are left to the engine, which names them.
    """
    try:
        why = next(filter(None, map(_why_unbounded, _templates(tokenizer))), "")
    except TooLarge as error:
        why = str(error)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    if why:
        raise TemplateUnbounded(f"the chat template {why}: {tokenizer}", hint=_HINT)


def _templates(tokenizer: Path) -> Iterator[str]:
    """Yield the templates that an engine may use: the file's comes before the configuration's."""
    file = tokenizer / "chat_template.jinja"
    if file.exists():
        yield text_of(file, limits.TEMPLATE)
        return
    found = parse_json(text_of(tokenizer / "tokenizer_config.json", limits.DOCUMENT))["chat_template"]
    if not isinstance(found, list):
        found = [{"template": found}]
    yield from (one["template"] for one in found)


@lru_cache(maxsize=64)
def _why_unbounded(template: str) -> str:
    command = [sys.executable, "-P", "-c", _TRIAL]
    text, env = template.encode(errors="replace"), passed_on(os.environ)
    try:
        done = subprocess.run(command, input=text, capture_output=True, timeout=_TIMEOUT_S, check=False, env=env)
    except subprocess.TimeoutExpired:  # other processes used the processor: it proves nothing
        return ""
    return _WHY.get(done.returncode, "")
