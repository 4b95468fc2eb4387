"""What the settings say of parts that other packages bring: a name, and settings of their own."""

import json
import re
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from eval_jobs.host.secrets import is_secret
from eval_jobs.records.program import Program
from tracker.config.section import folder_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SAYS_WHERE = ("_env", "_file")
_OF_THIS_FOLDER = ("./", "../")

Values = dict[str, str | int | float | bool]


def _hold_no_secret(options: Values) -> Values:
    for name in options:
        if is_secret(name) and not name.endswith(_SAYS_WHERE):
            raise ValueError(
                f"{name} would be stored with every result: use {name}_env (an environment variable) "
                f"or {name}_file (a file)"
            )
    return options


def _anchored(options: Values, info: ValidationInfo) -> Values:
    folder = folder_of(info)
    return {
        key: str(folder / value) if isinstance(value, str) and value.startswith(_OF_THIS_FOLDER) else value
        for key, value in options.items()
    }


Options = Annotated[Values, AfterValidator(_hold_no_secret), AfterValidator(_anchored)]
"""Free settings, passed on as texts; what begins with `./` or `../` is relative to the file."""


def checked_name(name: str) -> str:
    """Return a name that may be one of an entry point, or a member of an enumeration of what is built in.

    Raises:
        ValueError: it cannot be one.
    """
    if not isinstance(name, Enum) and not _NAME.fullmatch(name):
        raise ValueError("a name may contain only letters, digits, dots, dashes and underscores")
    return name


MAY_BE_A_NAME = AfterValidator(checked_name)


def program_of(name: str, options: Values) -> Program:
    """Return the record; which version it has, the composition root says."""
    texts = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in options.items())
    return Program(name=name, options=tuple(sorted(texts)))
