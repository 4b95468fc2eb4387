"""How far a plan is, as fields; `progress_text` is the only place that makes words of it, and nothing parses them.

Progress(stage=Stage.EVALUATING, benchmarks=("sums", "facts"), done=45, total=100)    # sums, facts 45/100
Progress(stage=Stage.LOADING, note="starting the engine (3 s)")
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_TEXT_CHARS = 200
MAX_NAMES_CHARS = 60
PASSES = ("", "first pass: ", "second pass: ")


class Stage(StrEnum):
    """What a plan spends its time on, one after the other."""

    LOADING = "loading"
    EVALUATING = "evaluating"
    PROBING = "probing"


class Unit(StrEnum):
    """What is counted."""

    SAMPLES = "samples"
    """Answered ones, each counted once: the plan gets further by it."""
    REQUESTS = "requests"
    """Some may have failed, or be asked again: shown only."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What is being done for a plan, and how much of it is done."""

    stage: Stage
    note: str = ""
    """What is being done, for people."""
    benchmarks: tuple[str, ...] = ()
    """Those that are counted together."""
    done: int | None = None
    total: int | None = None
    unit: Unit = Unit.SAMPLES
    pass_number: int = 0
    """1 or 2 of a calibration, which asks everything twice; 0: it is asked once."""

    @property
    def answered(self) -> int | None:
        """Answered samples; None: this tells nothing about them."""
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
    """Return a text as it is kept and shown: short, and without control characters."""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT_CHARS])
