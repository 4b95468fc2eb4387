"""Tables of tracker.toml: which run is watched, and how its checkpoints are found."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tracker.config.section import Section
from tracker.domain.discovery import WatchOptions


class RunSection(Section):
    """Which training run is watched."""

    name: str = Field(min_length=1, description="Name of the run in tables, reports and MLflow.")
    output_dir: Path = Field(description="Folder that the trainer writes its checkpoints into. It may not exist yet.")
    state_dir: Path = Field(
        default=Path(".tracker"), description="Where pins, results, logs and the default MLflow store are kept."
    )


class WatchSection(Section):
    """How checkpoints are found."""

    pattern: str = Field(
        default="checkpoint-*", description="Folder names of checkpoints; the number at the end is the step."
    )
    settle_s: float = Field(default=3.0, gt=0, description="How long files must stay unchanged, in seconds.")
    rescan_s: float = Field(
        default=10.0, gt=0, description="Seconds between two looks at the disk when no file event comes."
    )
    polling: bool = Field(
        default=False, description="Do not rely on file events: needed on network file systems, which have none."
    )

    def to_options(self) -> WatchOptions:
        """Return the record for the checkpoint source."""
        return WatchOptions(pattern=self.pattern, settle_s=self.settle_s, rescan_s=self.rescan_s, polling=self.polling)
