"""Small files of the kernel; what is missing, not readable or no number is None or empty."""

from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.files import text_of


def text_in(path: Path) -> str:
    """Return the text of a file."""
    try:
        return text_of(path, limits.DOCUMENT, errors="replace")
    except (OSError, ValueError):
        return ""


def number_of_file(path: Path) -> int | None:
    """Return the number that a file consists of; None also for `max`."""
    text = text_in(path).strip()
    if text.isdecimal():
        return int(text)
    return None


def fields_of(path: Path) -> dict[str, int]:
    """Return the numbers in lines such as `MemTotal:   123 kB` or `inactive_file 123`."""
    lines = (line.replace(":", " ").split() for line in text_in(path).splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
