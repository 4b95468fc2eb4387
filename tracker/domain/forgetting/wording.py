"""Texts of the ledger, shared by terminals and reports. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from tracker.domain.forgetting.levels import Forgetting
from tracker.domain.forgetting.sample_lives import Event
from tracker.domain.forgetting.transfer import BackwardTransfer
from tracker.domain.forgetting.types import BenchmarkLedger, LedgerRow, RunLedger, Window
from tracker.domain.records.display import (
    count_text,
    names_text,
    one_line,
    percent_text,
    signed_text,
    span_text,
    steps_text,
)

_SHOWN = 6
"""Maximum changes of a sample that are listed."""


def chance_text(expected: float) -> str:
    """Return the number of entries expected by chance, with one decimal below 10."""
    if expected < 10:
        return f"{expected:.1f}"
    return f"{expected:.0f}"


def window_text(window: Window) -> str:
    """Return `correct at step 600 and incorrect at step 1000`; mostly so if there are several on a side."""
    mostly = "mostly " if max(len(window.before_steps), len(window.after_steps)) > 1 else ""
    before, after = steps_text(window.before_steps), steps_text(window.after_steps)
    return f"{mostly}correct at {before} and {mostly}incorrect at {after}"


def newest_text(row: LedgerRow) -> str:
    """Return `81 now`, the samples lost at the newest checkpoint alone; empty if unknown."""
    if row.newest is None:
        return ""
    return f"{row.newest.lost} now"


def transfer_sentences(ledger: RunLedger) -> tuple[str, ...]:
    """Return the backward transfer of each phase, then of all together, one sentence each; () without phases."""
    notes = [_of_phase(one.phase, one.transfer) for one in ledger.transfers]
    if ledger.backward_transfer is not None:
        notes.append(f"backward transfer: {_change(ledger.backward_transfer)}")
    return tuple(notes)


def notes(benchmark: BenchmarkLedger) -> tuple[str, ...]:
    """Return which checkpoints of a benchmark do not count or are incomplete, and whether there is too little data."""
    reasons = (
        (benchmark.measured_otherwise, "measured differently from the newest checkpoint"),
        (benchmark.passed_over, "screened only, or scored on too few samples"),
    )
    notes = [f"{why}, not counted: {names_text([f'step {step}' for step in steps])}" for steps, why in reasons if steps]
    partly = [
        f"step {step} ({percent_text(share)})"
        for step, share in zip(benchmark.steps, benchmark.coverage, strict=False)
        if share < 1
    ]
    if partly:
        notes.append(f"not all samples scored: {names_text(partly)}")
    notes += _of_numbers(benchmark)
    return tuple(f"{one_line(benchmark.benchmark)}: {text}" for text in notes)


def _of_numbers(benchmark: BenchmarkLedger) -> Iterator[str]:
    """Yield what the numbers of a benchmark do not say themselves."""
    if benchmark.accepted_step is not None:
        yield f"level accepted at step {benchmark.accepted_step}, still compared with the one before the loss"
    if benchmark.whole.forgetting is None:
        yield "too few checkpoints or samples to measure forgetting"
    elif _needs_chance(benchmark, benchmark.whole.forgetting):
        yield "retention unknown, because it was best at first: set `chance` in its [[benchmark]]"


def _needs_chance(benchmark: BenchmarkLedger, found: Forgetting) -> bool:
    is_first = found.peak.first_step in benchmark.steps[:1]
    return benchmark.chance is None and is_first and found.ci_low > 0


def events_text(events: Sequence[Event]) -> str:
    """Return `learned at 300, forgotten at 800`; of many events, the newest ones."""
    return _newest([f"{event.change} at {event.step}" for event in events])


def life_text(right: Sequence[bool | None], steps: Sequence[int]) -> str:
    """Return `incorrect at 100 to 200, correct at 300 to 600`; of many spans, the newest ones."""
    words = {True: "correct", False: "incorrect", None: "no score"}
    stretches = []
    for is_right, group in groupby(zip(right, steps, strict=True), key=itemgetter(0)):
        stretches.append(f"{words[is_right]} at {span_text([step for _, step in group])}")
    return _newest(stretches)


def _newest(changes: list[str]) -> str:
    left_out = len(changes) - _SHOWN
    if left_out > 0:
        changes = [count_text(left_out, "earlier change"), *changes[-_SHOWN:]]
    return ", ".join(changes)


def _of_phase(phase: str | None, transfer: BackwardTransfer) -> str:
    learned = names_text(transfer.benchmarks)
    if phase is None:
        return f"{learned}: {_change(transfer)} since the first measurement{_retained(transfer)}"
    return f"{learned}, learned in phase {one_line(phase)}: {_change(transfer)} since its end{_retained(transfer)}"


def _retained(transfer: BackwardTransfer) -> str:
    if transfer.retention is None:
        return ""
    return f"; {percent_text(transfer.retention)} retained"


def _change(transfer: BackwardTransfer) -> str:
    return f"{signed_text(transfer.mean)} (95 % CI {signed_text(transfer.ci_low)} to {signed_text(transfer.ci_high)})"
