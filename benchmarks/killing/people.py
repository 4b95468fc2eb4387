"""Who takes part in a round: every process that inherited the round's CHAOS_DIR or writes below it, and what it is for.

vLLM's processes write their titles over their environments: those are known by their log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
ROLES = (
    ("eval_jobs.execute.worker.main", "worker"),
    ("tracker.wiring.agent", "agent"),
    ("eval_jobs.evaluate.evalscope.child.main", "evaluator"),
    ("eval_jobs.probe.client.main", "prober"),
    ("vllm.entrypoints.openai.api_server", "engine"),
    ("benchmarks.killing.trainer", "trainer"),
    ("mlflow", "mlflow"),
    ("uvicorn", "mlflow"),
    ("postgres", "database"),
    ("watch", "watcher"),
    ("worker", "worker"),
)
"""A word of the command line and what it shows; the first that fits."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """One living process."""

    pid: int
    role: str
    """"" when it is none of those we know."""
    command: str


def everybody(home: Path) -> Iterator[Person]:
    """Yield all living processes of the round in `home`, except this one."""
    mark = f"CHAOS_DIR={home}".encode()
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0") and not _writes_below(entry, home):
                continue
            words = (entry / "cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            yield Person(pid=int(entry.name), role=_role(words), command=" ".join(words))


# --- private


def _writes_below(entry: Path, home: Path) -> bool:
    return (entry / "fd" / "1").readlink().is_relative_to(home)


def _role(words: list[str]) -> str:
    if words[0].startswith("VLLM::"):
        return "engine"
    found = (role for word, role in ROLES if any(w == word or w.endswith(f"/{word}") for w in words))
    return next(found, "")
