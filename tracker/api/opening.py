"""Opens the project that a configuration describes."""

from pathlib import Path

from eval_jobs.queue_types import Backlog
from tracker.config import load_config
from tracker.wiring.project import Project


def open_project(config_path: Path, *, asks_at_once: bool = False, is_in_order: bool = False) -> Project:
    """Return the project of a configuration. Its parts are opened when they are used, so that this changes nothing.

    `asks_at_once` ignores `watch.reask_wait_s`, and so does `is_in_order`, which skips nothing and takes the lowest
    step first.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    config = load_config(config_path)
    update: dict[str, object] = {}
    if asks_at_once or is_in_order:
        update["reask_wait_s"] = 0.0
    if is_in_order:
        update["backlog"] = Backlog.OLDEST
    return Project(config.model_copy(update={"watch": config.watch.model_copy(update=update)}))
