"""Progress of a plan as fields. Only `progress_text` converts it to text, and the text is never parsed.

Progress(stage=Stage.EVALUATING, benchmarks=("sums", "facts"), done=45, total=100)    # sums, facts 45/100
Progress(stage=Stage.LOADING, note="starting the engine (3 s)")
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_TEXT_CHARS = 300
MAX_NAMES_CHARS = 60
PASSES = ("", "first pass: ", "second pass: ")


class Stage(StrEnum):
    """The stages of a plan, in order."""

    LOADING = "loading"
    EVALUATING = "evaluating"
    PROBING = "probing"


class Unit(StrEnum):
    """What is counted."""

    SAMPLES = "samples"
    """Answered samples, each counted once. A higher count is progress of the plan."""
    REQUESTS = "requests"
    """Requests, which may have failed or may be repeated: for display only."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkCount:
    """How much of one benchmark is done."""

    benchmark: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The current activity of a plan, and how much of it is done."""

    stage: Stage
    note: str = ""
    """The current activity, for display."""
    benchmarks: tuple[str, ...] = ()
    """The benchmarks that are counted together."""
    done: int | None = None
    total: int | None = None
    counts: tuple[BenchmarkCount, ...] = ()
    """Of each benchmark that has started; empty: they are not counted one by one."""
    unit: Unit = Unit.SAMPLES
    pass_number: int = 0
    """1 or 2 in a calibration, which evaluates everything twice. 0: a single pass."""

    @property
    def answered(self) -> int | None:
        """Number of answered samples. None: this progress does not count them."""
        is_counted = self.stage is Stage.EVALUATING and self.unit is Unit.SAMPLES
        if is_counted:
            return self.done
        return None


def progress_text(progress: Progress | None) -> str:
    """Return one short line without control characters; empty for None."""
    if progress is None:
        return ""
    names = ", ".join(progress.benchmarks)
    if len(names) > MAX_NAMES_CHARS and len(progress.benchmarks) > 1:
        names = f"{len(progress.benchmarks)} benchmarks"
    if progress.done is None:
        text = f"{names}: {progress.note}" if names else progress.note
    else:
        total = "" if progress.total is None else f"/{progress.total}"
        text = f"{names} {progress.done}{total}"
    return shown_line(PASSES[progress.pass_number] + text)


def shown_line(text: str) -> str:
    """Return `text` as it is stored and shown: shortened, and without control characters."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT_CHARS])
