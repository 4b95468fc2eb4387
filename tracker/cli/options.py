"""Options that several commands share, and how they open the project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tracker.config import DEFAULT_NAME, load_config
from tracker.wiring import Project

Function = TypeVar("Function", bound=Callable[..., Any])


def config_option(function: Function) -> Function:
    """Add `--config`, passed on as `config_path`."""
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path(DEFAULT_NAME),
        show_default=True,
        help="The project's configuration.",
    )(function)


def json_option(function: Function) -> Function:
    """Add `--json`, passed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for a script.")(function)


def open_project(config_path: Path) -> Project:
    """Read the configuration and return what it describes.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    return Project(load_config(config_path))
