"""One bar with the time left for each benchmark that workers evaluate, for the live line of a terminal."""

from collections.abc import Callable, Iterable

from rich.console import Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from eval_jobs.queue_types import Running
from tracker.domain.records.display import one_line

MAX_BARS = 12
NAME_CHARS, BAR_CHARS = 32, 20


class ProgressBars:
    """Bars of the running plans; a bar disappears with its benchmark's last sample."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(BAR_CHARS),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            get_time=monotonic_s,
            auto_refresh=False,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}

    def update(self, running: Iterable[Running], title: Callable[[Running], str]) -> None:
        """Show what the workers have reported last."""
        shown: dict[tuple[str, str], TaskID] = {}
        for one in running:
            for count in one.progress.counts if one.progress is not None else ():
                key = (one.plan.id, count.benchmark)
                if count.done >= count.total or len(shown) >= MAX_BARS:
                    continue
                name = one_line(f"{title(one)}  {count.benchmark}")[:NAME_CHARS]
                task = self._tasks.get(key)
                if task is None:
                    task = self._bars.add_task(name, total=count.total, completed=count.done)
                self._bars.update(task, completed=count.done, total=count.total)
                shown[key] = task
        for key in self._tasks.keys() - shown.keys():
            self._bars.remove_task(self._tasks[key])
        self._tasks = shown

    def __rich__(self) -> RenderableType:
        """Return the bars, or nothing."""
        return self._bars.get_renderable() if self._tasks else Group()
