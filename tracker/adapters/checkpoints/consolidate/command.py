"""Runs the user's command that converts a held checkpoint of another form, and checks what it wrote."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from eval_jobs.host.bounded.files import last_line_of
from eval_jobs.host.cpu_placement import set_niceness
from eval_jobs.host.secrets import without_secrets
from eval_jobs.host.unforeseen import exit_words
from tracker.adapters.checkpoints.files.listing import facts_of_folder, path_in, read_listing
from tracker.domain.checkpoints.completeness import Complete, assess
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.records.display import one_line

NICENESS = 10
POLL_S = 0.2


def run_command(
    command: Sequence[str], pin: Pin, out: Path, log_path: Path, *, stopped: threading.Event, silence_s: float
) -> Mapping[str, Any]:
    """Convert the checkpoint in a hold to safetensors in `out`; the answer is that of `consolidate.child`.

    Args:
        command: with `{source}`, the hold or its only file, and `{target}`, which is `out`.
        pin: the hold.
        out: an empty folder.
        log_path: file for the command's output.
        stopped: ends the command when it is set.
        silence_s: maximum time in which neither the log nor the result grows.
    """
    files, folder = pin.complete.weights, Path(pin.folder)
    source = str(path_in(folder, files[0]) if len(files) == 1 else folder)
    with log_path.open("wb") as log_file:
        try:
            process = subprocess.Popen(
                [part.replace("{source}", source).replace("{target}", str(out)) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                env=without_secrets(os.environ) | {"CUDA_VISIBLE_DEVICES": ""},  # the GPUs are the trainer's
                start_new_session=True,
            )
        except OSError as error:
            return _failed(f"{command[0]}: {error.strerror}")
        set_niceness(process.pid, NICENESS)
        try:
            trouble = _wait(process, [out, log_path], stopped, silence_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if trouble:
        return _failed(trouble)
    if process.returncode:
        return _failed(f"{command[0]} {exit_words(process.returncode)}: {one_line(last_line_of(log_path))}")
    return _checked(out, pin.step)


def _wait(process: subprocess.Popen[bytes], grows: Sequence[Path], stopped: threading.Event, silence_s: float) -> str:
    """Wait for the end; return why it was not awaited, "" if it was."""
    size, since_s = 0, time.monotonic()
    while process.poll() is None:
        if stopped.wait(POLL_S):
            return "the tracker was stopped"
        now = sum(_bytes_in(path) for path in grows)
        if now != size:
            size, since_s = now, time.monotonic()
        if time.monotonic() - since_s > silence_s:
            return f"no progress for {silence_s:g} s"
    return ""


def _bytes_in(path: Path) -> int:
    with suppress(OSError):  # a temporary file was renamed meanwhile
        return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")))
    return 0


def _checked(out: Path, step: int) -> Mapping[str, Any]:
    facts = facts_of_folder(out)
    found = None if facts is None else assess(read_listing(facts, step))
    if not isinstance(found, Complete) or found.raw is not None:
        why = "it is not safetensors" if found is None or isinstance(found, Complete) else found.reason
        return _failed(f"the result is not a Hugging Face folder: {why}")
    return {
        "type": "done",
        "files": list(found.weights),
        "tensors": 0,
        "dtype": "",
        "unpickled": False,
        "complete": {"format": found.format, "base_model": found.base_model},
    }


def _failed(message: str) -> Mapping[str, Any]:
    return {"type": "error", "kind": "command", "message": message}
