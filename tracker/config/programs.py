"""What the settings say of parts that other packages bring: a name, and settings of their own."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from eval_jobs.host.secrets import is_secret
from eval_jobs.records.program import Program

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SAYS_WHERE = ("_env", "_file")
_OF_THIS_FOLDER = ("./", "../")


def _hold_no_secret(options: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
    for name in options:
        if is_secret(name) and not name.endswith(_SAYS_WHERE):
            raise ValueError(
                f"{name} would be stored with every result: use {name}_env (an environment variable) "
                f"or {name}_file (a file)"
            )
    return options


Options = Annotated[dict[str, str | int | float | bool], AfterValidator(_hold_no_secret)]
"""Free settings, passed on as texts."""


def checked_name(name: str) -> str:
    """Return a name that may be one of an entry point.

    Raises:
        ValueError: it cannot be one.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("a name may contain only letters, digits, dots, dashes and underscores")
    return name


def program_of(name: str, options: Mapping[str, str | int | float | bool]) -> Program:
    """Return the record; which version it has, the composition root says."""
    texts = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in options.items())
    return Program(name=name, options=tuple(sorted(texts)))


def anchored_options(options: Options, folder: Path) -> Options:
    """Return them with what begins with `./` or `../` counted from `folder`."""
    return {
        key: str(folder / value) if isinstance(value, str) and value.startswith(_OF_THIS_FOLDER) else value
        for key, value in options.items()
    }
