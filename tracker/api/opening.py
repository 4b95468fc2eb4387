"""Opens the project that a configuration describes."""

from __future__ import annotations

from pathlib import Path

from eval_jobs.execute.worker.orphans import reap_orphans
from tracker.config import load_config
from tracker.wiring.project import Project


def open_project(config_path: Path) -> Project:
    """Read the configuration and return what it describes; processes of killed workers of ours are ended.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    project = Project(load_config(config_path))
    reap_orphans(project.work_dir)
    return project
