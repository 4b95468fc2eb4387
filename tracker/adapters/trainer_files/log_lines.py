"""The lines of a trainer's log, one after the other: a log may be larger than the memory, and a line without an end."""

from collections.abc import Iterator
from pathlib import Path

from eval_jobs.errors import ConfigError
from eval_jobs.host.bounded.files import open_regular

MAX_LINE_BYTES = 64 << 10
"""What follows in the same line is left out: it is data, such as a printed tensor."""


def log_lines(path: Path) -> Iterator[str]:
    """Yield the lines without their ends; bytes that are no UTF-8 are replaced.

    Raises:
        ConfigError: there is no such file, it cannot be read, or it is a pipe or a device.
    """
    try:
        with open_regular(path) as file:
            while line := file.readline(MAX_LINE_BYTES):
                is_cut = not line.endswith(b"\n")
                yield line.rstrip(b"\r\n").decode(errors="replace").replace("\0", "")
                while is_cut and (rest := file.readline(MAX_LINE_BYTES)):
                    is_cut = not rest.endswith(b"\n")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint="pass a log file that you may read") from error
