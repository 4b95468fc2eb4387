"""The logs of a training: which files they are, and the rank that a path names. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath

from tracker.domain.checkpoints.listing import is_training_log

NEVER = datetime.fromtimestamp(0, UTC)
TEXT_SUFFIXES = frozenset((".log", ".out", ".err", ".txt"))
CSV_LOG = "metrics.csv"
"""Of Lightning's CSVLogger."""
EVENTS = "events.out.tfevents."
"""Begin of the names of TensorBoard's event files."""

_CHECKPOINTS = "checkpoints"
"""Of Lightning, which writes its logs beside it."""
_RANK_NAMES = re.compile(r"(?:^|[^a-z0-9])rank[-_.]?(\d+)(?![0-9])", re.IGNORECASE)
_TORCHRUN = re.compile(r"(?:^|/)attempt_\d+/(\d+)/std(?:out|err)\.log$")
_ATTEMPT = re.compile(r"attempt_\d+")
_TORCHRUN_RUN = re.compile(r".*_[a-z0-9_]{8}")
"""Of torchrun, which makes a folder of this name for every run in its --log-dir, with one for each attempt in it."""
_RANK_PLACE = re.compile(r"%\d*t")
"""In patterns of logs: the rank, as in sbatch --output."""
_GLOB_PARTS = re.compile(r"(?P<rank>%\d*t)|(?P<folders>\*\*/?)|(?P<some>\*)|(?P<one>\?)|\[(?P<not>!?)(?P<set>[^]]+)\]")
_RUN_FOLDER = re.compile(r"v\d+-\d{8}-\d{6}")
"""Of ms-swift, which makes one for every run."""
_JOB_NUMBERS = re.compile(r"\d{3,}")
"""Numbers of jobs and times; smaller ones are those of ranks and parts."""
_NOT_LOGS = frozenset(("requirements.txt", "merges.txt", "vocab.txt", "license.txt", "readme.txt"))


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One log of a run."""

    name: str
    """Path, as it is shown."""
    rank: int | None = None
    """Rank that the path names."""
    read_at: datetime = NEVER
    """When its newest bytes were read."""
    is_history: bool = False
    """Whether these bytes were written before the log was followed."""


def is_event_file(name: str) -> bool:
    """Return whether a file of this name has TensorBoard's events."""
    return name.startswith(EVENTS)


def is_log(name: str) -> bool:
    """Return whether a file of this name, in or below a trainer's folder, is a log that can be read as text."""
    if name == CSV_LOG or is_training_log(name):
        return True
    return PurePath(name).suffix in TEXT_SUFFIXES and name.lower() not in _NOT_LOGS


def is_exact(name: str) -> bool:
    """Return whether a log has numbers as the trainer computed them; others are rounded for people."""
    return is_event_file(name) or name.endswith((".jsonl", ".csv", ".json"))


def rank_of_path(path: str) -> int | None:
    """Return the rank in a path: rank_7.log, or attempt_0/7/stdout.log of torchrun; None: it names none."""
    found = _TORCHRUN.search(path) or _RANK_NAMES.search(PurePath(path).name)
    return None if found is None else int(found[1])


def job_numbers(name: str, rank: int | None) -> tuple[str, tuple[int, ...]] | None:
    """Return what the logs of several jobs have in common, and the numbers that tell them apart.

    None: the log has no such number, or is that of a rank.
    """
    path = PurePath(name)
    numbers = tuple(map(int, _JOB_NUMBERS.findall(path.name)))
    if not numbers or rank is not None or is_event_file(path.name):
        return None
    return str(path.with_name(_JOB_NUMBERS.sub("#", path.name))), numbers


def glob_of(pattern: str) -> str:
    """Return the glob pattern of a pattern of logs, in which `%t` stands for the rank."""
    return _RANK_PLACE.sub("*", pattern)


def rank_by_pattern(path: str, pattern: str) -> int | None:
    """Return the rank in a path where a pattern of logs has `%t`; None: the pattern has none, or does not fit."""
    if _RANK_PLACE.search(pattern) is None:
        return None
    expression, end = "", 0
    for part in _GLOB_PARTS.finditer(pattern):
        expression += re.escape(pattern[end : part.start()]) + _expression_of(part)
        end = part.end()
    found = re.fullmatch(expression + re.escape(pattern[end:]), path)
    return None if found is None else int(found[1])


def _expression_of(part: re.Match[str]) -> str:
    """Return the regular expression of a part of a glob pattern."""
    if part["set"]:
        characters = re.sub(r"([\\^\[])", r"\\\1", part["set"])
        return f"[{'^' if part['not'] else ''}{characters}]"
    kind = part.lastgroup or ""
    return {"rank": r"(\d+)", "folders": ".*", "some": "[^/]*", "one": "[^/]"}[kind]


def is_torchrun_folder(name: str) -> bool:
    """Return whether torchrun makes folders of this name for a run or an attempt, with those of ranks below."""
    return is_attempt(name) or _TORCHRUN_RUN.fullmatch(name) is not None


def is_attempt(name: str) -> bool:
    """Return whether torchrun makes folders of this name, which have one for each rank."""
    return _ATTEMPT.fullmatch(name) is not None


def training_folder(output_dir: str) -> str:
    """Return the folder in which a trainer works that saves in `output_dir`."""
    path = PurePath(output_dir)
    return str(path.parent) if path.name == _CHECKPOINTS else output_dir


def is_run_folder(name: str) -> bool:
    """Return whether a trainer makes folders of this name for single runs, each with checkpoints of its own."""
    return _RUN_FOLDER.fullmatch(name) is not None
