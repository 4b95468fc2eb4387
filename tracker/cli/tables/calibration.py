"""Calibration -> table and sentences for the terminal. Pure."""

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from tracker.cli.tables.render import number_columns, plain_table
from tracker.domain.calibration.noise import repetition
from tracker.domain.calibration.repetition_text import change_text, rate_text, unfit_text
from tracker.domain.records.calibration import Calibration, Fitness, Repetition
from tracker.domain.records.display import one_line, signed_text

_STYLES: Mapping[Fitness, str] = {Fitness.FIT: "green", Fitness.UNFIT: "bold red", Fitness.UNSURE: "dim"}
_MORE = "use more samples, more repeats or temperature 0, or raise policy.min_effect"


def repetitions(calibration: Calibration, min_effect: float) -> tuple[Repetition, ...]:
    """Return the run-to-run noise of each benchmark."""
    return tuple(repetition(calibration, asked, min_effect) for asked in calibration.benchmarks)


def calibration_table(calibration: Calibration, *, min_effect: float) -> RenderableType:
    """Return one line for each benchmark, followed by failures and conclusions."""
    found = repetitions(calibration, min_effect)
    parts: list[RenderableType] = [_table(found)] if found else []
    return Group(*parts, *_notes(calibration, found))


def _table(found: tuple[Repetition, ...]) -> Table:
    table = plain_table(
        Column("benchmark", overflow="fold", min_width=9),
        *number_columns("samples", "flips\n95 % CI", "same score,\ntext differs", "noise,\n95 % bound"),
        Column(no_wrap=True, min_width=6),
    )
    for one in found:
        interval = f"{rate_text(one.flip_rate_low)} to {rate_text(one.flip_rate_high)}"
        table.add_row(
            Text(one_line(one.benchmark)),
            str(one.samples),
            Text.assemble(f"{one.flips}\n", (interval, "dim")),
            str(one.other_texts),
            Text.assemble(f"{change_text(one.noise)}\n", (f"at most {change_text(one.noise_high)}", "dim")),
            Text(str(one.fitness), style=_STYLES[one.fitness]),
        )
    return table


def _notes(calibration: Calibration, found: tuple[Repetition, ...]) -> Iterator[Text]:
    for failure in calibration.failures:
        why = f"{one_line(failure.message)} [{failure.code}]"
        yield Text.assemble((f"{one_line(failure.benchmark)} not calibrated: ", "magenta"), why)
        yield Text(f"  hint: {one_line(failure.hint)}", style="dim")
    if found:
        yield Text("")
        yield from _conclusions(found)
        yield Text("verdicts, comparisons and reports now show this noise beside every difference", style="dim")


def _conclusions(found: tuple[Repetition, ...]) -> Iterator[Text]:
    for one in found:
        if not one.shift:
            continue
        moved = f"{one_line(one.benchmark)}: the mean of the second pass is shifted by {signed_text(one.shift)}"
        yield Text(f"{moved}, more than the flips explain; something changed between the passes", style="yellow")
    unfit = [one for one in found if one.fitness is Fitness.UNFIT]
    yield from (Text(one_line(unfit_text(one)), style="bold red") for one in unfit)
    if unfit:
        yield Text(f"  hint: {_MORE}", style="dim")
    if any(one.fitness is Fitness.UNSURE for one in found):
        yield Text("unsure: not enough samples; inconclusive verdicts show the minimum detectable loss", style="dim")
