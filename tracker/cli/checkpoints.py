"""How commands name evaluated checkpoints: STEP, latest, RUN@STEP, RUN@latest or STEP:DIGEST."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from eval_jobs.errors import ConfigError
from tracker.domain.overview import overview
from tracker.domain.types import Report
from tracker.ports import History

_SHOWN = 20
"""Steps that a hint lists."""


def known_run(history: History, run: str) -> str:
    """Return `run` when the history knows it.

    Raises:
        ConfigError: it does not.
    """
    if run not in history.runs():
        raise ConfigError(f"no run is called {run!r}", hint=f"known runs: {', '.join(history.runs()) or 'none yet'}")
    return run


def known_checkpoint(history: History, name: str, default_run: str) -> Report:
    """Return the newest report of an evaluated checkpoint, perhaps without its evidence.

    Of a step that was saved again with other weights the newest counts, unless the name goes on with a digest.

    Raises:
        ConfigError: the name cannot be read, or nothing of that name was evaluated.
    """
    return known_checkpoints(history, (name,), default_run)[0]


def known_checkpoints(history: History, names: Sequence[str], default_run: str) -> tuple[Report, ...]:
    """Return `known_checkpoint` of each name; what is known of a run is read once for all of them."""
    outlines = cache(history.outlines)
    return tuple(_checkpoint(history, name, default_run, outlines) for name in names)


# --- private


def _checkpoint(history: History, name: str, default_run: str, outlines: Callable[[str], tuple[Report, ...]]) -> Report:
    run, _, place = name.rpartition("@")
    step, _, digest = place.partition(":")
    run = known_run(history, run or default_run)
    if step != "latest" and not step.isdecimal():
        raise ConfigError(f"{name!r} names no checkpoint", hint="write STEP, STEP:DIGEST, RUN@STEP or latest")
    reports = outlines(run)
    left = {checkpoint.digest for checkpoint, _ in overview(reports).left}
    newest_first = sorted(reports, key=lambda r: (_digest(r) not in left, r.step, r.created_at), reverse=True)
    found = [r for r in newest_first if step == "latest" or r.step == int(step)]
    found = [r for r in found if _digest(r).startswith(digest)]
    if not found:
        steps = sorted({report.step for report in reports})
        known = ", ".join(map(str, steps[-_SHOWN:])) or "none yet"
        known = f"\u2026, {known}" if len(steps) > _SHOWN else known
        raise ConfigError(f"run {run} has no evaluated step {place}", hint=f"evaluated steps: {known}")
    return found[0]


def _digest(report: Report) -> str:
    return "" if report.checkpoint is None else report.checkpoint.digest
