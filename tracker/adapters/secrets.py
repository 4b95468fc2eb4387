"""Reads secrets from the variables and files in the settings."""

import os
from collections.abc import Iterable
from pathlib import Path

from eval_jobs.errors import ConfigError
from eval_jobs.host.secrets import register_secret

_TAKEN: dict[str, str] = {}
"""Values removed from the environment of this process, by variable."""


def take_out(variables: Iterable[str]) -> None:
    """Remove variables from the environment that child processes inherit; `read_secret` still finds them."""
    for variable in variables:
        if value := os.environ.pop(variable, ""):
            _TAKEN[variable] = register_secret(value)


def read_secret(*, variable: str, file: Path | None, setting: str) -> str:
    """Return the secret in an environment variable or in the first line of a file; empty if neither is given.

    It is masked in all output from then on, and removed from the environment that child processes inherit.

    Raises:
        ConfigError: the variable is not set, or the file cannot be read or is empty; the hint names `setting`.
    """
    if variable:
        take_out([variable])
        value = _TAKEN.get(variable, "")
        if not value:
            raise ConfigError(f"environment variable {variable} is not set", hint=f"set it, or change {setting}_env")
        return value
    if file is None:
        return ""
    hint = f"fix {setting}-file" if setting.startswith("--") else f"fix {setting}_file"
    try:
        first, *_ = file.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}", hint=hint) from error
    if not first:
        raise ConfigError(f"no secret in the first line of {file}", hint=hint)
    return register_secret(first)
