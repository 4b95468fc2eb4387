"""What the process that follows a training's logs works with."""

from dataclasses import dataclass

from tracker.domain.health.line_rules import LineRule
from tracker.domain.health.logs.user_formats import LogFormat
from tracker.domain.health.series.conditions import MetricCondition


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Settings of the agent of one run."""

    run: str
    """Name of the run."""
    output_dir: str
    """Absolute path of the trainer's folder; empty: checkpoints come from elsewhere."""
    patterns: tuple[str, ...]
    """Absolute glob patterns of further logs."""
    rules: tuple[LineRule, ...]
    conditions: tuple[MetricCondition, ...] = ()
    formats: tuple[LogFormat, ...] = ()
    plugins: tuple[str, ...] = ()
    """Rules of other packages, by name."""
