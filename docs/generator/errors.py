"""The reference of errors and exit codes, from the classes that carry them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from eval_jobs import errors
from eval_jobs.errors import ExitCode, TrackerError

HEAD = """# Errors and exit codes

An error has a stable code, a message and a hint. `tracker --debug COMMAND` adds the traceback. What to do about the
frequent ones: [Troubleshooting](../troubleshooting.md).

The exit code is 4 unless another one is given. Workers retry what is marked *retried*;
everything else needs a change first.
"""


def errors_page() -> str:
    """Return docs/reference/errors.md."""
    lines = [HEAD]
    for error in _tree(TrackerError):
        retried = " *Retried.*" if error.retryable else ""
        summary = (inspect.getdoc(error) or "").partition("\n")[0]
        code = "" if error.exit_code is ExitCode.BROKEN else f" Exit code {int(error.exit_code)}."
        lines.append(f"### {error.code}\n\n{summary}{code}{retried}\n")
    lines.append("## Exit codes\n\n| code | meaning |\n|---|---|")
    lines += [f"| {int(code)} | {_meaning(code)} |" for code in ExitCode]
    return "\n".join(lines) + "\n"


# --- private


def _tree(error: type[TrackerError]) -> Iterator[type[TrackerError]]:
    yield error
    for each in error.__subclasses__():
        if each.__module__ == errors.__name__:
            yield from _tree(each)


def _meaning(code: ExitCode) -> str:
    """Return the text below a member of `ExitCode`."""
    body = ast.parse(inspect.getsource(ExitCode)).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - the source of a class is a class
    for member, text in zip(body.body, body.body[1:], strict=False):
        match member, text:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(meaning))):
                if name == code.name:
                    return " ".join(meaning.split())
    raise KeyError(code.name)
