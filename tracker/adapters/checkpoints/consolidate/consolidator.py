"""Converts a held training state that an engine cannot load to safetensors: sharded by FSDP or DeepSpeed, or a pickle.

    hold of a raw state -> a process with torch reads it -> safetensors in the same hold -> raw files dropped -> publish

The frameworks are heavy, and their files may be from an untrusted source, so all of it runs in a separate process
(`child`): in its own process group, with low priority, killed with this one. Apart from a log, nothing is written
outside the hold. A kill at any line leaves either the raw hold, which the next start converts again, or the result.
"""

import json
import logging
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eval_jobs import errors
from eval_jobs.host.secrets import passed_on
from eval_jobs.host.storage import NO_SPACE
from eval_jobs.host.unforeseen import exit_words
from eval_jobs.types import CheckpointFormat
from tracker.adapters.checkpoints.consolidate.command import run_command
from tracker.adapters.checkpoints.files.dcp_index import ALLOWED, read_index
from tracker.adapters.checkpoints.files.documents import read_document
from tracker.adapters.checkpoints.files.listing import facts_of_folder
from tracker.adapters.checkpoints.files.raw_files import model_files
from tracker.adapters.checkpoints.pins.hold import demand_unchanged, remove_folder, store_error
from tracker.adapters.checkpoints.pins.manifest import read_pin, write_manifest
from tracker.domain.checkpoints.completeness import Complete
from tracker.domain.checkpoints.listing import ADAPTER_CONFIG, CONFIG, DCP_INDEX, LATEST, Broken, RawKind, StateIndex
from tracker.domain.checkpoints.pin import Pin
from tracker.domain.checkpoints.raw.state import PICKLE_HINT
from tracker.domain.checkpoints.watching import WatchOptions

log = logging.getLogger(__name__)

CHILD = Path(__file__).parent / "child" / "main.py"
OUT = ".consolidating"
SILENCE_S = 3600.0
"""Reading all ranks of a large model is one phase without progress; half an hour was observed on slow disks."""
STOP_S = 5.0
POLL_S = 0.2

Answer = Mapping[str, Any]


@dataclass(kw_only=True)
class Consolidator:
    """Converts raw states to safetensors."""

    python: str
    """Interpreter with torch, and DeepSpeed where it is needed; empty: the running one."""
    allow_pickle: bool
    convert: tuple[str, ...] = ()
    """The user's command for other forms."""
    log_dir: Path
    """Folder for the log of a conversion; it is kept only if the conversion failed."""
    silence_s: float = SILENCE_S
    """Seconds without progress after which a conversion is killed."""
    stopped: threading.Event = field(default_factory=threading.Event)
    """When set, the running conversion is killed, and its hold waits for the next start."""
    needed: dict[str, int] = field(default_factory=dict)
    """Hold -> bytes that its last attempt required: a large state is not read again before they are free."""

    def whole(self, pin: Pin) -> Pin:
        """Return the hold with its weights as safetensors; a converted hold is returned unchanged.

        Raises:
            CheckpointUnreadable, CheckpointIncomplete: the state is broken or was overwritten.
            CheckpointUnsafe: it cannot be read without running code.
            ConsolidationFailed: the conversion failed on this machine; the hold is intact and can be retried.
            DiskFull, StoreError: the result cannot be written.
        """
        known = read_pin(Path(pin.folder))
        pin = pin if known is None else replace(known, checkpoint=None)
        if pin.complete.raw is None:
            _drop_raw(pin)
            return _with_config(pin) if pin.complete.config_from else pin
        demand_unchanged(pin)
        self._demand_room(pin)
        try:
            answer = self._converted(pin)
            demand_unchanged(pin)
            complete = replace(pin.complete, **answer.get("complete", {}))
            done = _finished(replace(pin, complete=complete, unpickled=answer["unpickled"]), answer["files"])
        except OSError as error:
            raise store_error(error, f"cannot convert {pin.source} to safetensors in {pin.folder}") from error
        log.info(
            "%s step %d: converted %d tensors from %s to safetensors, %s",
            pin.run_id,
            pin.step,
            answer["tensors"],
            pin.complete.raw,
            answer["dtype"],
        )
        return done

    def _demand_room(self, pin: Pin) -> None:
        needed, free = self.needed.get(pin.folder, 0), shutil.disk_usage(pin.folder).free
        if free < needed:
            raise errors.DiskFull(
                f"cannot convert {pin.source} to safetensors: {needed >> 20} MiB required",
                hint=f"free disk space in {pin.folder}; the conversion is retried",
            )

    def _converted(self, pin: Pin) -> Answer:
        out = Path(pin.folder) / OUT
        remove_folder(out)
        out.mkdir()
        for path in model_files(Path(pin.complete.config_from)) if pin.complete.config_from else ():
            if not (out.parent / path.name).exists():
                shutil.copyfile(path, out / path.name)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        log_path = self.log_dir / f"{Path(pin.folder).parent.name}-step-{pin.step}.log"
        with ExitStack() as undo:
            undo.callback(remove_folder, out)
            if pin.complete.raw is RawKind.OTHER:
                answer = run_command(self.convert, pin, out, log_path, stopped=self.stopped, silence_s=self.silence_s)
            else:
                answer = self._ask(_request(pin, allow_pickle=self.allow_pickle), log_path)
            if answer["type"] == "error":
                self.needed[pin.folder] = answer.get("needed_bytes", 0)
                raise _error(pin, answer, log_path)
            undo.pop_all()
        log_path.unlink()
        return answer

    def _ask(self, request: Mapping[str, Any], log_path: Path) -> Answer:
        """Return the child's last response, after its whole process group has been killed."""
        with log_path.open("wb") as log_file:
            try:
                process = subprocess.Popen(
                    [self.python or sys.executable, "-P", str(CHILD)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log_file,
                    cwd=request["out"],
                    env=_environment(),
                    start_new_session=True,
                )
            except OSError as error:
                return {"type": "error", "kind": "missing", "message": f"{self.python}: {error.strerror}"}
        answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process, answers), daemon=True)
        reader.start()
        try:
            _write(process, request)
            return self._last(process, answers)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join(STOP_S)
            process.communicate()  # closes both pipes

    def _last(self, process: subprocess.Popen[bytes], answers: queue.SimpleQueue[Answer]) -> Answer:
        silent_s = 0.0
        while silent_s < self.silence_s and not self.stopped.is_set():
            is_gone = process.poll() is not None
            try:
                answer = answers.get(timeout=POLL_S)
            except queue.Empty:
                silent_s += POLL_S
                if is_gone:
                    kind = "memory" if process.returncode == -signal.SIGKILL else "died"
                    return {"type": "error", "kind": kind, "message": _how(process.returncode)}
                continue
            silent_s = 0.0
            if answer["type"] != "progress":
                return answer
        why = "the tracker was stopped" if self.stopped.is_set() else f"no progress for {self.silence_s:g} s"
        return {"type": "error", "kind": "silent", "message": why}


def consolidator_of(options: WatchOptions, pins_dir: Path) -> Consolidator:
    """Return what converts the holds in `pins_dir`; its logs are next to it."""
    log_dir = pins_dir.absolute().with_name("consolidation")
    return Consolidator(
        python=options.python, allow_pickle=options.allow_pickle, convert=options.convert, log_dir=log_dir
    )


class Consolidations:
    """Conversions in the background, one at a time: they take minutes, while pinning and verdicts must continue."""

    def __init__(self, consolidator: Consolidator, wake: Callable[[], None]) -> None:
        """Set how to convert; `wake` is called when a conversion has ended."""
        self._consolidator = consolidator
        self._wake = wake
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="consolidate")
        self._under_way: dict[Future[Pin], Pin] = {}

    def start(self, pin: Pin) -> None:
        """Start converting a hold, or queue it behind the others."""
        future = self._executor.submit(self._consolidator.whole, pin)
        self._under_way[future] = pin
        future.add_done_callback(lambda _: self._wake())

    def ended(self) -> Iterator[tuple[Pin, Future[Pin]]]:
        """Yield each hold whose conversion has ended since the last call, with its outcome."""
        for future in [future for future in self._under_way if future.done()]:
            yield self._under_way.pop(future), future

    def is_busy(self) -> bool:
        """Return whether a conversion is running or queued."""
        return bool(self._under_way)

    def close(self) -> None:
        """Stop the running conversion; the next start finds its hold. Calling it twice is harmless."""
        self._consolidator.stopped.set()
        self._executor.shutdown(cancel_futures=True)


def _request(pin: Pin, *, allow_pickle: bool) -> Mapping[str, Any]:
    folder, complete = Path(pin.folder), pin.complete
    state, is_lora = folder / complete.state_folder, complete.format is CheckpointFormat.LORA
    keys: Mapping[str, str] = {}
    if complete.raw is RawKind.DCP:
        index = read_index(state / DCP_INDEX)
        keys = index.keys if isinstance(index, StateIndex) else {}
    name = ADAPTER_CONFIG if is_lora else CONFIG
    config = read_document(folder / name if (folder / name).exists() else folder / OUT / name)
    return {
        "kind": str(complete.raw),
        "state": str(state),
        "files": list(complete.weights),
        "keys": dict(keys),
        "allowed": ALLOWED,
        "out": str(folder / OUT),
        "stem": "adapter_model" if is_lora else "model",
        "config": {} if isinstance(config, Broken) or is_lora else dict(config),
        "allow_pickle": allow_pickle,
        "no_space": sorted(NO_SPACE),
    }


def _environment() -> dict[str, str]:
    """Return the child's environment, without secrets, because the child reads pickles that may run code."""
    return passed_on(os.environ) | {
        "CUDA_VISIBLE_DEVICES": "",  # the GPUs are the trainer's
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0",
    }


def _write(process: subprocess.Popen[bytes], request: Mapping[str, Any]) -> None:
    assert process.stdin is not None  # noqa: S101 - it was started with a pipe
    with suppress(OSError):  # the child has already ended, and `_last` reports it
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()


def _read(process: subprocess.Popen[bytes], answers: queue.SimpleQueue[Answer]) -> None:
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    for line in process.stdout:
        with suppress(ValueError):
            answers.put(json.loads(line))


def _finished(pin: Pin, files: list[str]) -> Pin:
    """Replace the raw state with the result. Writing the manifest turns the raw hold into a converted one."""
    folder, raw = Path(pin.folder), pin.complete
    written = sorted(path.name for path in (folder / OUT).iterdir())
    for name in written:
        (folder / OUT / name).replace(folder / name)
    weights = tuple(sorted(name for name in files if name.endswith(".safetensors")))
    dropped = {*raw.weights, LATEST, f"{raw.state_folder}/{DCP_INDEX}".lstrip("/"), "pytorch_model.bin.index.json"}
    small = {name for name in (*raw.held, *written) if not name.startswith("zero_to_")} - dropped - set(weights)
    complete = replace(raw, weights=weights, held=weights, raw=None, config_from="")
    done = _with_files(replace(pin, raw_weights=raw.weights), complete, small)
    _drop_raw(done)
    return done


def _with_config(pin: Pin) -> Pin:
    """Copy configuration and tokenizer from another folder into a hold that only lacks these."""
    folder, complete = Path(pin.folder), pin.complete
    added = [path for path in model_files(Path(complete.config_from)) if path.name not in complete.held]
    try:
        for path in added:
            shutil.copyfile(path, folder / path.name)
        return _with_files(pin, replace(complete, config_from=""), {path.name for path in added})
    except OSError as error:
        raise store_error(error, f"cannot add the configuration to {folder}") from error


def _with_files(pin: Pin, complete: Complete, added: Set[str]) -> Pin:
    """Return the hold with small files that were added to its folder, and write its manifest."""
    folder = Path(pin.folder)
    held = complete.weights + tuple(sorted(complete.small() | added))
    facts = facts_of_folder(folder)
    if facts is None:
        raise errors.StoreError(f"the pin {folder} of {pin.source} was deleted", hint="do not modify the pins folder")
    own_files = tuple(file for file in facts.files if file.name in held)
    done = replace(pin, complete=replace(complete, held=held), own_files=own_files)
    write_manifest(done, folder, is_durable=True)
    return done


def _drop_raw(pin: Pin) -> None:
    if pin.raw_weights:
        keep = {*pin.complete.held, ".pin.json"}
        for path in Path(pin.folder).iterdir():
            if path.is_dir():
                remove_folder(path)
            elif path.name not in keep:
                path.unlink()


def _error(pin: Pin, answer: Answer, log_path: Path) -> errors.CheckpointError | errors.StoreError:
    kind, text = answer["kind"], answer["message"]
    what = f"cannot convert {pin.source} to safetensors: {text}"
    if kind == "disk":
        return errors.DiskFull(what, hint="free disk space; the conversion is retried")
    if kind == "unsafe":
        hint = PICKLE_HINT if pin.complete.raw is RawKind.ZERO else "save the checkpoint as safetensors"
        return errors.CheckpointUnsafe(f"cannot read {pin.source} without running code: {text}", hint=hint)
    if kind == "unreadable":
        return errors.CheckpointUnreadable(what, hint=f"save the checkpoint again; see {log_path}")
    again = f"see {log_path}; the conversion is retried at the next start"
    todo = _REMEDIES.get(kind)
    return errors.ConsolidationFailed(what, hint=f"{todo}; {again}" if todo else again)


_REMEDIES = {
    "missing": "set watch.python to a Python with torch 2.6 or later and, for ZeRO, DeepSpeed",
    "memory": "check `dmesg` for an out-of-memory kill",
    "command": "correct watch.convert",
}


def _how(code: int) -> str:
    if code >= 0:
        return f"conversion exited with code {code}"
    return f"conversion {exit_words(code)}"
