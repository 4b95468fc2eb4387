"""Changes of settings along a run: which series of a benchmark begins or continues, and since when. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from tracker.domain.records.display import names_text, one_line
from tracker.domain.records.loss_text import Series
from tracker.domain.records.reasons import Difference


@dataclass(frozen=True, kw_only=True)
class SeriesChange:
    """A benchmark is measured with other settings than before, or for the first time."""

    run_id: str
    suite: str
    benchmark: str
    at: datetime
    """When the first evaluation with these settings began."""
    step: int
    """Its checkpoint."""
    number: int
    """Number of the series, from 1: earlier settings have their earlier number."""
    settings: str
    """`SeriesKey.settings`."""
    differences: tuple[Difference, ...] = ()
    """From the settings before; empty for the first series."""
    is_new: bool = True
    """Whether the series begins; else it continues."""


def series_numbers(changes: Iterable[SeriesChange]) -> Series:
    """Return the number of each series that a run has or had."""
    return {(one.suite, one.benchmark, one.settings): one.number for one in changes}


def change_lines(changes: Iterable[SeriesChange]) -> Iterator[str]:
    """Yield `settings changed: sums max_tokens 8 -> 16, series 2 begins`; the first series are no change."""
    names: dict[object, list[str]] = {}
    shown: dict[object, SeriesChange] = {}
    for one in changes:
        if one.differences:
            key = one.at, one.differences, one.number, one.is_new
            names.setdefault(key, []).append(one.benchmark)
            shown[key] = one
    for place, one in shown.items():
        settings = ", ".join(map(_difference_text, one.differences))
        word = "begins" if one.is_new else "continues"
        yield one_line(f"settings changed: {names_text(names[place])} {settings}, series {one.number} {word}")


def _difference_text(one: Difference) -> str:
    if not one.now or one.setting == "data_digest":
        return one.setting
    return f"{one.setting} {one.before} -> {one.now}"
