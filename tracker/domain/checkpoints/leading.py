"""The process that watches a run, among several that could. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The process that leads."""

    host: str
    pid: int
    since: datetime
    output_dir: str
    """Output folder that the process watches."""

    def sentence(self, run: str) -> str:
        """Return who watches `run`, where and since when."""
        return (
            f"run {run} ({self.output_dir}) is already being watched: process {self.pid} on {self.host}, "
            f"since {self.since.astimezone():%Y-%m-%d %H:%M:%S}"
        )
