"""Reads the rows of one stream of a trainer, with what the lines before said. Pure.

    reader = RowReader()
    reader.read(" 12%|#2    | 12/100 [00:10<01:20, 1.1it/s]")     # None
    reader.read("{'loss': '2.5', 'epoch': '0.12'}")               # step 12

transformers prints a dictionary when its bar has reached the step, but tqdm may not have drawn that yet:
    <bar 1/24>, <blanks over the bar>, {'loss': '2.1', 'epoch': '0.25'}, <bar 2/24>
The bar behind it is exact: with its epoch, it shows later bars that lag behind. A program whose output is buffered
prints dictionaries long after their bars: they get no step.
"""

import csv
import math
from dataclasses import dataclass

from tracker.domain.health.logs.progress_bars import MARK, NESTED, Bar, bars_in
from tracker.domain.health.logs.step_lines import (
    COLOURS,
    MAX_CHARS,
    STEP_NAMES,
    StepRow,
    row_from,
    step_row,
    whole_step,
)
from tracker.domain.health.logs.user_formats import LogFormat, number_of

MAX_JSON_CHARS = 64 << 10
"""Characters of a line that are examined: of an object, a row of a CSV file, or many states of a bar."""
EPOCH_ERROR = 0.005
"""Epochs are printed with at least two decimals."""
_MOST_EPOCHS = 1e9
_BLANKS = 20
"""Spaces that overwrite a bar."""


@dataclass(kw_only=True)
class RowReader:
    """Reads the lines of one stream in their order. Its fields are its whole state, and of bounded size."""

    formats: tuple[LogFormat, ...] = ()
    """Format of the user, tried first."""
    is_csv: bool = False
    """Whether the first line names columns."""
    header: tuple[str, ...] = ()
    bar: Bar | None = None
    """Of the training."""
    other: Bar | None = None
    """A bar of another length since: of an evaluation, or of the next training."""
    is_cleared: bool = False
    """Whether blanks overwrote a bar last: a text follows, unless it is buffered or goes elsewhere."""
    is_late: bool = False
    """Whether the output is buffered."""
    held: StepRow | None = None
    """The last row, until the bar behind it shows its exact step."""
    awaited_epoch: float | None = None
    """Of the last row, whose bar comes next."""
    exact: tuple[int, float] | None = None
    """Step and epoch of the newest row with a bar behind it."""
    newest: tuple[int, float] | None = None
    """Step of the bar before the newest row, and its epoch."""

    def read(self, line: str) -> StepRow | None:
        """Read the next line, without its end; return its row. No line is an error."""
        if self.is_csv:
            return self._of_cells(line[:MAX_JSON_CHARS])
        if not line:
            return None
        if "\r" not in line and MARK not in line and (self.bar is None or not line.isspace()):
            row = self._of_text(line)
            self.is_cleared = False
            return row
        newest = None
        for part in filter(None, line[:MAX_JSON_CHARS].split("\r")):
            newest = self._of_part(part) or newest
        return newest

    def _of_part(self, part: str) -> StepRow | None:
        text, placed = part, None
        if MARK in part and not part.startswith("{"):
            bars, text = bars_in(part[:MAX_CHARS])
            for bar in bars:
                self._draw(bar)
                placed = placed or self._released(bar)
        if text and not COLOURS.sub("", text).strip():
            self.is_cleared = len(text) >= _BLANKS and NESTED not in text
            return placed
        row = self._of_text(text)
        self.is_cleared = False
        return placed or row

    def _released(self, bar: Bar) -> StepRow | None:
        """Return the row that waited for this bar; None: there is none, or the bar is another one."""
        row = self.held
        if row is None or self.bar is None or bar.length != self.bar.length:
            return None
        self.held = None
        return row if self.is_late else row._replace(step=bar.step)

    def _draw(self, bar: Bar) -> None:
        if self.bar is not None and bar.length != self.bar.length:
            self.other = bar
            return
        if self.is_cleared and self.bar is not None and bar.step == self.bar.step:
            self.is_late = True  # something was printed, and is not here
        if self.awaited_epoch is not None:
            self.exact = (bar.step, self.awaited_epoch)
            self.awaited_epoch = None
        if bar.step == 0:
            self._start(bar)
        self.bar, self.other, self.is_cleared = bar, None, False

    def _start(self, bar: Bar) -> None:
        self.bar, self.other, self.is_late = bar, None, False
        self.awaited_epoch, self.exact, self.newest = None, None, None

    def _of_text(self, text: str) -> StepRow | None:
        text = text.lstrip()
        text = text[: MAX_JSON_CHARS if text.startswith("{") else MAX_CHARS]
        if "\x1b" in text:
            text = COLOURS.sub("", text)
        row = self._described(text) or step_row(text)
        if row is None or row.step is not None or row.is_summary:
            return row
        return self._placed(row)

    def _described(self, text: str) -> StepRow | None:
        for form in self.formats:
            if row := form.row(text.strip()):
                return row
        return None

    def _placed(self, row: StepRow) -> StepRow | None:
        """Return a row without a step at the step of the bar, if it is one of transformers."""
        is_training = "loss" in row.values
        if is_training and self.other is not None:
            self._start(self.other)
        epoch = row.values.get("epoch", 0.0)
        is_at_start = self.newest is None and epoch == 0.0  # an evaluation before the training
        is_logged = is_training or ("epoch" in row.values and not is_at_start)
        if self.bar is None or not is_logged or not 0 <= epoch < _MOST_EPOCHS:
            return row
        step = self._step_at(self.bar.step, epoch)
        self.awaited_epoch = epoch if self.is_cleared and epoch else None
        self.newest = (self.bar.step, epoch)
        return self._exchanged(row._replace(step=step, total=self.bar.total))

    def _exchanged(self, row: StepRow) -> StepRow | None:
        """Hold a row back if its bar follows, and return the one before it, which had none."""
        before, self.held = self.held, None
        if not self.is_cleared or not all(map(math.isfinite, row.values.values())):
            return row
        self.held = row
        return before

    def _step_at(self, shown: int, epoch: float) -> int | None:
        is_redrawn = self.exact == self.newest
        if self.newest is not None and not is_redrawn and self.newest[0] == shown and epoch > self.newest[1]:
            self.is_late = True  # two rows of two steps cannot follow the same bar
        if self.is_late or (shown == 0 and epoch > 0):
            return None
        if self.exact is None or min(epoch, self.exact[1]) <= EPOCH_ERROR:
            return shown
        return _corrected(shown, epoch, self.exact)

    def _of_cells(self, line: str) -> StepRow | None:
        try:
            text = line.lstrip("\ufeff").encode(errors="replace").decode()  # the header is stored
            cells = tuple(cell.strip() for cell in next(csv.reader([text]), ()))
        except csv.Error:
            return None
        if not self.header or any(cell.lower() in STEP_NAMES for cell in cells):
            self.header = cells
            return None
        found = dict(zip(self.header, cells, strict=False))
        described = (form.row_of(found) for form in self.formats)
        return next(filter(None, described), None) or _of_columns(found)


def _corrected(shown: int, epoch: float, exact: tuple[int, float]) -> int | None:
    """Return the step at an epoch: that of the bar unless it lags behind; None: the epoch is too coarse to tell."""
    step, at = exact
    low = step / (at + EPOCH_ERROR) * (epoch - EPOCH_ERROR)
    high = step / (at - EPOCH_ERROR) * (epoch + EPOCH_ERROR)
    slack = 1 + abs(epoch - at)  # an epoch may have one step fewer than the epochs say
    has_moved = shown > step or epoch <= at
    if has_moved and low - slack <= shown <= high + slack:
        return shown
    lowest, highest = math.ceil(low), math.floor(high)
    return whole_step(lowest) if lowest == highest else None


def _of_columns(found: dict[str, str]) -> StepRow | None:
    numbers = {name.lower(): number_of(cell) for name, cell in found.items() if name}
    row = row_from({name: number for name, number in numbers.items() if number is not None})
    if row.step is None or not row.values:
        return None
    # Lightning counts steps from 0; its tables have both columns.
    return row._replace(step=row.step + ("epoch" in found and "step" in found))
