"""Progress of running plans: on a terminal a bar for each benchmark above a live line, elsewhere a line every 30 s."""

from collections.abc import Callable, Iterable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.spinner import Spinner
from rich.text import Text

from eval_jobs.records.progress import Progress
from tracker.cli.tables.render import print_line
from tracker.domain.records.display import one_line

MAX_BARS = 12
NAME_CHARS, BAR_CHARS = 32, 20
LINE_S = 30.0
"""Seconds between two lines of text where there is no live line."""

Titled = tuple[str, Progress | None]
"""A short name of what is evaluated, such as its step, and what its worker has reported last."""


class LiveProgress:
    """A context that shows what is being evaluated."""

    def __init__(self, console: Console, text: str, monotonic_s: Callable[[], float]) -> None:
        self._console = console
        self._monotonic_s = monotonic_s
        self._line_at_s = monotonic_s()
        self._spinner = Spinner("dots", text=text)
        self._bars = ProgressBars(monotonic_s)
        shown = Group(self._bars, self._spinner)
        self._live = Live(shown, console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: str, running: Iterable[Titled] = (), *, is_busy: bool = True) -> None:
        """Show `text` and the counts of running plans; without a live line, only text of a busy time is printed."""
        line = one_line(text)
        self._bars.update(running)
        self._spinner.update(text=Text(line, style="dim"))
        if self._live is None and is_busy and self._monotonic_s() - self._line_at_s >= LINE_S:
            print_line(self._console, "progress", line)
            self._line_at_s = self._monotonic_s()


class ProgressBars:
    """Bars of the running plans; a bar disappears with its benchmark's last sample."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(BAR_CHARS),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            get_time=monotonic_s,
            auto_refresh=False,
        )
        self._tasks: dict[tuple[str, str], TaskID] = {}

    def update(self, running: Iterable[Titled]) -> None:
        """Show what the workers have reported last."""
        shown: dict[tuple[str, str], TaskID] = {}
        for title, progress in running:
            for count in progress.counts if progress is not None else ():
                key = (title, count.benchmark)
                if count.done >= count.total or len(shown) >= MAX_BARS:
                    continue
                name = one_line(f"{title}  {count.benchmark}")[:NAME_CHARS]
                task = self._tasks.get(key)
                if task is None:
                    task = self._bars.add_task(name, total=count.total, completed=count.done)
                self._bars.update(task, completed=count.done, total=count.total)
                shown[key] = self._tasks[key] = task
        for key in self._tasks.keys() - shown.keys():
            self._bars.remove_task(self._tasks[key])
        self._tasks = shown

    def __rich__(self) -> RenderableType:
        return self._bars.get_renderable() if self._tasks else Group()
