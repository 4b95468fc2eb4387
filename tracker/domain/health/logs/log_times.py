"""When the steps of a log were logged, as the log itself tells. Pure.

    times = LogTimes()
    for line in lines: times.take(line)
    times.seconds        # (0.0, 8.2, 16.4, ...)

It reads the elapsed time of ms-swift and LLaMA-Factory, of progress bars, the times of iterations that Megatron prints,
and the dates of DeepSpeed's lines of steps.
"""

import re
from dataclasses import dataclass, field
from datetime import datetime

_ELAPSED = re.compile(r'"elapsed_time": "(?:(\d+) days?, )?(?:(?:(\d+):)?(\d+):(\d+)|(?:(\d+)h )?(?:(\d+)m )?(\d+)s)"')
_BAR = re.compile(r"\|[^|]*\| *(\d+)/\d+ \[(?:(\d+):)?(\d+):(\d+)<")
_ITERATION = re.compile(r"iteration +(\d+)/.{0,200}?elapsed time per iteration \((ms|s)\): ([\d.]+)")
_DATED = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+\].{0,200}?\bstep=\d+")
_QUICK = ("elapsed", "<", "step=")
"""Any line with a time has one of these."""
MOST = 1_000_000


@dataclass(kw_only=True)
class LogTimes:
    """Times of steps in seconds since the first one, ascending; a clock that goes back begins again where it was."""

    seconds: list[float] = field(default_factory=list)
    _offset_s: float = 0.0
    _last: tuple[float, int] | None = None
    """Newest time by the log's own clock, and step of a bar or an iteration."""

    def take(self, line: str) -> None:
        """Note the time in a line, if it has one."""
        if not any(text in line for text in _QUICK) or len(self.seconds) >= MOST:
            return
        found = self._time_in(line)
        if found is None:
            return
        before = self._last
        self._last = found
        if before is not None and found[0] < before[0]:
            self._offset_s = self.seconds[-1] - found[0]
            return
        if before is None or found[1] != before[1] or found[1] < 0:
            self.seconds.append(found[0] + self._offset_s)

    def _time_in(self, line: str) -> tuple[float, int] | None:
        if elapsed := _ELAPSED.search(line):
            return _seconds(elapsed), -1
        if iteration := _ITERATION.search(line):
            return self._after_iteration(int(iteration[1]), float(iteration[3]) / (1000 if iteration[2] == "ms" else 1))
        if bar := _BAR.search(line):
            return float(int(bar[2] or 0) * 3600 + int(bar[3]) * 60 + int(bar[4])), int(bar[1])
        if dated := _DATED.match(line):
            return datetime.strptime(dated[1] + "+0000", "%Y-%m-%d %H:%M:%S%z").timestamp(), -1
        return None

    def _after_iteration(self, step: int, each_s: float) -> tuple[float, int]:
        if self._last is None or not 0 < step - self._last[1] < 10_000:
            return (self._last or (0.0, 0))[0], step
        return self._last[0] + each_s * (step - self._last[1]), step


def _seconds(elapsed: re.Match[str]) -> float:
    days, *clock = (int(part or 0) for part in elapsed.groups())
    hours, minutes, seconds = (clock[place] + clock[place + 3] for place in range(3))
    return float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
