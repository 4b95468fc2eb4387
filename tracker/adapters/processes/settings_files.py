"""The paths in files that the arguments of a process name: a YAML file or a script often says alone where it saves."""

import logging
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eval_jobs import limits
from eval_jobs.host.bounded.answers import in_thread
from eval_jobs.host.bounded.files import text_of
from tracker.domain.health.processes.jobs import absolute

log = logging.getLogger(__name__)

TIMEOUT_S = 1.0
MAX_PATHS = 200
"""In one settings file."""
MAX_FILES = 20
MAX_HUNG = 4
"""Readings that wait for a file server."""
_SETTINGS_FILE = re.compile(r"\.(?:ya?ml|json)$")
_SCRIPT = re.compile(r"\.py$")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_TOKEN = re.compile(r"""(?:"([^"\n]*)"|'([^'\n]*)')(\s*:)?|([^\s,\[\]{}"']+)""")
_QUOTED = re.compile(r""""([^"\n]*)"|'([^'\n]*)'""")
_PLACE = re.compile(r"dir|path|save|output|checkpoint|ckpt", re.IGNORECASE)
"""Keys of places: their values come first."""
_NO_PATH = re.compile(r"[-+.\d]*(?:e[-+]?\d+)?|true|false|null|none|yes|no", re.IGNORECASE)


@dataclass(kw_only=True)
class SettingsFiles:
    """Reads settings files in a thread: a file server that hangs stops nothing else."""

    timeout_s: float = TIMEOUT_S
    _hung: dict[tuple[Path, ...], Future[tuple[str, ...]]] = field(default_factory=dict)

    def paths(self, arguments: Sequence[str], folder: str) -> tuple[str, ...] | None:
        """Return the paths in the settings files that arguments name; None: they cannot be read in time."""
        return self._paths(arguments, folder, _SETTINGS_FILE)

    def script_paths(self, arguments: Sequence[str], folder: str) -> tuple[str, ...] | None:
        """Return the same of the Python scripts that arguments name."""
        return self._paths(arguments, folder, _SCRIPT)

    def _paths(self, arguments: Sequence[str], folder: str, kind: re.Pattern[str]) -> tuple[str, ...] | None:
        named = (argument.partition("=")[2] or argument for argument in arguments[1:])
        files = [Path(absolute(name, folder)) for name in named if kind.search(name)][:MAX_FILES]
        return self._read(tuple(files)) if files else ()

    def _read(self, files: tuple[Path, ...]) -> tuple[str, ...] | None:
        self._hung = {of: reading for of, reading in self._hung.items() if not reading.done()}
        if files in self._hung or len(self._hung) >= MAX_HUNG:
            return None
        try:
            reading = in_thread("settings files", lambda: _paths_in_all(files))
        except RuntimeError:  # no more threads
            return None
        try:
            return reading.result(self.timeout_s)
        except TimeoutError:
            self._hung[files] = reading
            log.warning("files of a process cannot be read in %.0f s: %s", self.timeout_s, ", ".join(map(str, files)))
        return None


def paths_in(text: str) -> tuple[str, ...]:
    """Return what may be a path among the values in a YAML or JSON file, those of keys that name a place first."""
    found = [(key, value) for key, value in _values(_COMMENT.sub("", text)) if not _NO_PATH.fullmatch(value)]
    found.sort(key=lambda entry: _PLACE.search(entry[0]) is None)
    return tuple(dict.fromkeys(value for _, value in found))[:MAX_PATHS]


def paths_in_script(text: str) -> tuple[str, ...]:
    """Return the texts in quotes on lines of a Python script that name a place, as `output_dir="out"`."""
    found: list[str] = []
    for line in text.splitlines():
        code = line.partition("#")[0]
        if _PLACE.search(code):
            found += (double or single for double, single in _QUOTED.findall(code))
    return tuple(dict.fromkeys(value for value in found if value.strip("./") and not value.startswith("-")))[:MAX_PATHS]


def _values(text: str) -> Iterator[tuple[str, str]]:
    """Yield each value with the key before it."""
    key = ""
    for double, single, colon, plain in _TOKEN.findall(text):
        value = double or single or plain
        if colon:
            key = value
        elif plain.endswith(":"):
            key = plain.removesuffix(":")
        else:
            yield key, value


def _paths_in_all(files: Sequence[Path]) -> tuple[str, ...]:
    found: list[str] = []
    for path in files:
        with suppress(OSError, ValueError):
            text = text_of(path, limits.SETTINGS, errors="replace")
            found += paths_in_script(text) if _SCRIPT.search(path.name) else paths_in(text)
    return tuple(dict.fromkeys(found))
