"""What the process that follows a training's logs works with."""

import re
from dataclasses import dataclass, field

from tracker.domain.health.logs.user_formats import LogFormat
from tracker.domain.health.processes.pace import HangLimits
from tracker.domain.health.rules.lines import LineRule
from tracker.domain.health.series.conditions import MetricCondition


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of the agent of one run."""

    run: str
    """Name of the run."""
    host: str = ""
    """Machine of the agent, if the watcher is on another one."""
    output_dir: str
    """Absolute path of the trainer's folder; empty: checkpoints come from elsewhere."""
    patterns: tuple[str, ...]
    """Absolute glob patterns of further logs."""
    rules: tuple[LineRule, ...]
    conditions: tuple[MetricCondition, ...] = ()
    formats: tuple[LogFormat, ...] = ()
    plugins: tuple[str, ...] = ()
    """Rules of other packages, by name."""
    guard_dir: str = ""
    """Folder in which `tracker guard` notes how the run's commands ended."""
    watches_processes: bool = True
    process_pattern: re.Pattern[str] | None = None
    """Of the commands that train; None: they are found by the output folder."""
    hang: HangLimits = field(default_factory=HangLimits)
