"""The reference of what a training's logs may show, from the rules that the program uses."""

from __future__ import annotations

from tracker.config.health import shipped_rules
from tracker.domain.health.processes.hangs import HangName
from tracker.domain.health.processes.signs import TITLES
from tracker.domain.health.series.findings import BEHIND, FLAT, GRADIENT, LR, MEMORY, NAN, THROUGHPUT
from tracker.domain.health.series.loss import SeriesName
from tracker.domain.health.series_incidents import title_and_hint
from tracker.domain.records.training import Severity

HEAD = """# Trouble in a training

What the [logs of a training](../explanation/health.md) may show. `alert` is sent, `shown` stands in reports only.

## Lines

The first class that fits a line names it. A class that ends the training is a crash; one with a wait is reported if no
step follows.

| class | what | reported | example | hint |
|---|---|---|---|---|
"""
NUMBERS = """
The tracker changes nothing in a training. From outside, the cache of a GPU cannot be emptied. Fewer workers, or
gradients accumulated over more batches, would be another experiment: hints name what to try. On a full disk,
`tracker gc` frees pins, and nothing else is deleted: logs are evidence, and other files belong to others.

## Numbers

| class | what | when | reported | hint |
|---|---|---|---|---|
"""
PROCESSES = """
## Processes and hardware

| class | what | when |
|---|---|---|
"""
_WHEN = {
    SeriesName.SPIKE: "two points beyond 10 robust deviations and 30 % of the expected loss",
    SeriesName.DIVERGED: "a spike without recovery in 20 points",
    SeriesName.COLLAPSED: "30 % above the lowest loss, then equal to four digits for five points",
    SeriesName.FLAT: "no fall over 200 points and a third of the run",
    SeriesName.GRADIENT: "two points beyond 10 robust deviations and three times the median",
    SeriesName.LR: "a factor of two between two points, and 10 % of the highest",
    SeriesName.THROUGHPUT: "below 70 % of the median for three points and five minutes",
    SeriesName.MEMORY: "a significant rise of 20 % over 100 points",
    SeriesName.BEHIND: "one of at least three ranks beyond 10 robust deviations and 5 % for three steps",
}
_PROCESSES = {
    HangName.WAITING: "one rank sleeps outside of the operation in which the others wait",
    HangName.STOPPED: "a signal or a debugger holds a process",
    HangName.DEAD: "a process ended, and others wait for it",
    HangName.BLOCKED: "a process waits for a disk or file server, and moves no byte",
    HangName.MISMATCH: "ranks wait in different operations",
    HangName.LOADER: "a worker of a data loader is stopped; or does not end, after the second limit",
    HangName.SPINNING: "one rank computes while the others wait, after the second limit",
    HangName.UNKNOWN: "no progress until the second limit",
    "killed_for_memory": "the count of killed processes of the cgroup rises",
    "rank_died": "one rank ended before the others, which lost it",
    "failed": "the command of `tracker guard` failed",
    "gone": "all processes ended before the last step",
    "memory_leak": "it grew over an hour, and reaches its limit within a day",
    "gpu_memory_leak": "it grew over an hour, and reaches its limit within a day",
    "shared_memory_leak": "it grew over an hour, and is full within a day",
    "descriptor_leak": "they grew over an hour, and reach their limit within a day",
    "gpu_lost": "its driver cannot reach it",
    "gpu_memory_errors": "more than when the training began",
    "gpu_too_hot": "at its own slowdown temperature",
    "gpu_slowed": "heat or power halves its clocks",
}
_SHOWN = (FLAT, GRADIENT, LR, MEMORY, BEHIND, NAN, THROUGHPUT)


def trouble_page() -> str:
    """Return docs/reference/trouble.md."""
    lines = []
    for rule in shipped_rules():
        how = str(rule.severity)
        if rule.wait_s:
            how = f"{'' if rule.severity is Severity.ALERT else 'shown, '}alert after {rule.wait_s:.0f} s"
        ends = ", ends the training" if rule.terminal else ""
        lines.append(f"| `{rule.name}` | {rule.title} | {how}{ends} | `{_cell(rule.example)}` | {_cell(rule.hint)} |")
    alerts = {rule.name: rule.is_alert for rule in _SHOWN}
    numbers = []
    for name in SeriesName:
        if name is not SeriesName.NAN:
            title, hint = title_and_hint(name)
            how = "alert" if alerts.get(name, True) else "shown"
            numbers.append(f"| `{name}` | {title} | {_WHEN[name]} | {how} | {hint} |")
    processes = [f"| `{name}` | {title} | {_PROCESSES[name]} |" for name, title in TITLES.items()]
    return "\n".join((HEAD + "\n".join(lines), NUMBERS + "\n".join(numbers), PROCESSES + "\n".join(processes), ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
