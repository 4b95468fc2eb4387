"""How commands name evaluated checkpoints: STEP, latest, RUN@STEP or RUN@latest."""

from __future__ import annotations

from eval_jobs.errors import ConfigError
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


def known_checkpoint(history: History, name: str, default_run: str) -> tuple[str, int]:
    """Return run and step of an evaluated checkpoint.

    Raises:
        ConfigError: the name cannot be read, or nothing of that name was evaluated.
    """
    run, _, step = name.rpartition("@")
    run = known_run(history, run or default_run)
    steps = [report.step for report in history.outlines(run)]
    if step != "latest" and not step.isdecimal():
        raise ConfigError(f"{name!r} names no checkpoint", hint="write STEP, RUN@STEP or latest")
    wanted = steps[-1:] if step == "latest" else [int(step)]
    if not wanted or wanted[0] not in steps:
        known = ", ".join(map(str, steps[-_SHOWN:])) or "none yet"
        known = f"\u2026, {known}" if len(steps) > _SHOWN else known
        raise ConfigError(f"run {run} has no evaluated step {step}", hint=f"evaluated steps: {known}")
    return run, wanted[0]
