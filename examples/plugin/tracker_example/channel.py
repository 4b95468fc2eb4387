"""A channel that appends every message to a file, one line of JSON each.

[[alerts.channel]]
name = "log"
kind = "append"
options = { path = "./alerts.jsonl" }
"""

import json
from pathlib import Path

from eval_jobs.errors import ChannelUnreachable
from eval_jobs.records.program import Program
from tracker.domain.records.alerts import AlertMessage


class AppendToFile:
    """`tracker.ports.Notifier` on a file."""

    repeat_s = None

    def __init__(self, name: str, program: Program) -> None:
        """Describe the channel; nothing is written yet."""
        program.check_options("path")
        self.name = name
        self._path = Path(program.option("path", "alerts.jsonl"))

    def notify(self, message: AlertMessage) -> str:
        """Append one line."""
        alerts = [{"state": a.state, "run": a.run_id, "step": a.step, "message": a.message} for a in message.alerts]
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"link": message.link, "alerts": alerts}) + "\n")
        except OSError as error:
            raise ChannelUnreachable(f"{self._path}: {error}", hint="free space, or name another file") from error
        return f"one line in {self._path}"
