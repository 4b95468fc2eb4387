"""Reads passwords from where the settings say that they are."""

from __future__ import annotations

import os
from pathlib import Path

from eval_jobs.errors import ConfigError


def read_secret(*, variable: str, file: Path | None, setting: str) -> str:
    """Return the secret in an environment variable or in the first line of a file; empty where neither is named.

    Raises:
        ConfigError: the variable is not set, or the file cannot be read or is empty. `setting` is named in both.
    """
    if variable:
        value = os.environ.get(variable, "")
        if not value:
            raise ConfigError(
                f"the environment variable {variable} is not set", hint=f"{setting}_env names it: set it before"
            )
        return value
    if file is None:
        return ""
    try:
        first, *_ = file.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint=f"{setting}_file names it") from error
    if not first:
        raise ConfigError(f"{file} has no password in its first line", hint=f"{setting}_file names it")
    return first
