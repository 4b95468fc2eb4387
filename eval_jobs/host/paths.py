"""One spelling for a folder that several paths lead to, to compare folders; files are opened by the user's path."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


def canonical(path: str) -> str:
    """Return an absolute path without links, `..` and bind mounts; an address such as s3://bucket is unchanged."""
    if "://" in path:
        return path
    real = os.path.realpath(path)
    try:
        return without_bind_mounts(real, MOUNTS.read_text(encoding="utf-8", errors="replace"))
    except OSError:  # not Linux, or no /proc
        return real


def without_bind_mounts(path: str, mountinfo: str) -> str:
    """Return `path` below the mount that shows the largest part of its file system. Pure.

    `mountinfo` is the text of /proc/PID/mountinfo (proc(5)): a bind mount has the device of the file system, and as its
    root the folder that it shows.
    """
    place, mounts = PurePosixPath(path), tuple(_mounts(mountinfo))
    above = [mount for mount in mounts if place.is_relative_to(mount.point)]
    if not above:
        return path
    own = max(reversed(above), key=lambda mount: len(mount.point.parts))  # the last one at a point hides the others
    inside = own.root / place.relative_to(own.point)
    same = [mount for mount in mounts if mount.device == own.device and inside.is_relative_to(mount.root)]
    widest = min(same, key=lambda mount: (len(mount.root.parts), mount.point))
    return str(widest.point / inside.relative_to(widest.root))


@dataclass(frozen=True, kw_only=True)
class _Mount:
    device: str
    root: PurePosixPath
    """Folder of the file system that it shows."""
    point: PurePosixPath


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            readable = (_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), field) for field in fields[3:5])
            root, point = map(PurePosixPath, readable)
            yield _Mount(device=fields[2], root=root, point=point)
