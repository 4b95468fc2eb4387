"""A process that renders the chat template on its standard input once, as an engine does, within limits."""

import re
import resource
import sys

from eval_jobs import limits

OUT_OF_MEMORY = 3
"""Exit code."""
_MESSAGES = [{"role": "user", "content": "How many legs do two spiders have? " * 10}]
_MARKS = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")
"""A tag of transformers for training, without effect on the text."""


def main() -> int:
    """Limit this process and render; the kernel ends it with SIGXCPU after its time."""
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.TEMPLATE_TIME.most),
        (resource.RLIMIT_AS, limits.TEMPLATE_MEMORY.most),
    ):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
    try:
        _render(sys.stdin.read())
    except MemoryError:
        return OUT_OF_MEMORY
    except Exception:  # noqa: BLE001 - the engine reports a template that fails
        return 0
    return 0


def _render(template: str) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # here: the parent only needs the exit code

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals |= {"raise_exception": _refuse, "strftime_now": str}
    environment.from_string(_MARKS.sub("", template)).render(
        messages=_MESSAGES, add_generation_prompt=True, bos_token="", eos_token=""
    )


def _refuse(message: str) -> None:
    raise ValueError(message)


if __name__ == "__main__":
    sys.exit(main())
