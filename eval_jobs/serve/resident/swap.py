"""Loads the weights of another checkpoint into a running engine, and proves that they are the right ones.

    swapped = swap(port, checkpoint, resident, timeout_s=60)
    resident = swapped.fingerprint

    compare with the resident (our process)          SwapRefused: nothing was changed
    label routes: present?                           SwapRefused: nothing was changed
    check: files complete, digest, layout, finite    SwapRefused: nothing was changed
    pause -> load -> reset the prefix cache -> label -> resume      SwapFailed: the engine is unusable

Check and load run in the engine's own workers (`worker_extension/tracker_worker`). Both hash the bytes that they
read. On every worker, the hash of the loaded bytes must be the checkpoint's digest.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_jobs.errors import CheckpointUnreadable, SwapFailed, SwapRefused
from eval_jobs.serve import worker_extension
from eval_jobs.serve.process.control import KEY, KEY_VARIABLE, EngineReply, get, post_to_engine
from eval_jobs.serve.weights.fingerprint import Fingerprint, fingerprint_of, obstacle
from eval_jobs.serve.worker_extension.tracker_worker.weight_files import layout_digest
from eval_jobs.types import Checkpoint

STEP_TIMEOUT_S = 30.0
"""Timeout of the steps that move no weights."""


@dataclass(frozen=True, kw_only=True)
class Swapped:
    """A verified swap."""

    digest: str
    """Hex SHA-256 of the loaded bytes, as `Checkpoint.digest`."""
    tensors: int
    repacked: tuple[str, ...]
    """Modules whose second copy of the weights was rebuilt."""
    took_s: float
    fingerprint: Fingerprint
    """Fingerprint of what the engine holds now."""


def swap(port: int, checkpoint: Checkpoint, resident: Fingerprint, *, timeout_s: float) -> Swapped:
    """Load `checkpoint` into the engine on `port`, which holds `resident`; requests in flight must finish soon.

    The caller must have checked that this kind of model may be swapped (`fingerprint.never_swapped`, a certificate).

    The engine was started with `extension_args` and `extension_environment`. `timeout_s`: separate limit for checking,
    for waiting until requests have finished, and for loading.

    Raises:
        SwapRefused: nothing was changed; the engine serves what it did before.
        SwapFailed: the engine is unusable.
    """
    started_s = time.monotonic()
    fingerprint = _compared(Path(checkpoint.uri), resident)
    _demand_label_routes(port)
    _check(port, checkpoint, fingerprint, timeout_s)
    _pause(port, timeout_s)
    repacked = _load(port, checkpoint, len(fingerprint.tensors), timeout_s)
    _demand(post_to_engine(port, "/reset_prefix_cache", timeout_s=STEP_TIMEOUT_S), "reset its prefix cache")
    _label(port, checkpoint.digest)
    _demand(post_to_engine(port, "/resume", timeout_s=STEP_TIMEOUT_S), "resume")
    return Swapped(
        digest=checkpoint.digest,
        tensors=len(fingerprint.tensors),
        repacked=repacked,
        took_s=time.monotonic() - started_s,
        fingerprint=fingerprint,
    )


def extension_args() -> tuple[str, ...]:
    """Return the engine arguments for `swap`, and for the gate that protects the developer routes."""
    package = "tracker_worker"
    return (
        *("--worker-extension-cls", f"{package}.extension.StrictLoading"),
        *("--middleware", f"{package}.gate.Gate"),
    )


def extension_environment(inherited: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment variables that `swap` requires, with PYTHONPATH joined to the `inherited` one."""
    folder = str(Path(worker_extension.__file__).parent)
    path = os.pathsep.join(part for part in (folder, inherited.get("PYTHONPATH", "")) if part)
    return {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": path, KEY_VARIABLE: KEY}


def _compared(folder: Path, resident: Fingerprint) -> Fingerprint:
    try:
        fingerprint = fingerprint_of(folder)
    except CheckpointUnreadable as error:
        raise _refused(error.message) from error
    reason = obstacle(resident, fingerprint)
    if reason:
        raise _refused(f"{folder} does not match the model of the running engine: {reason}")
    return fingerprint


def _demand_label_routes(port: int) -> None:
    """Set the engine's weight version to what it is: versions of vLLM without these routes are never swapped into."""
    reply = get(port, "/weight_info", timeout_s=STEP_TIMEOUT_S)
    held = reply.body.get("weight_version") if isinstance(reply.body, dict) else None
    if reply.is_ok and held is not None:
        reply = post_to_engine(port, "/update_weight_version", {"new_version": held}, timeout_s=STEP_TIMEOUT_S)
    elif reply.is_ok:
        raise _refused("the engine reports no weight version")
    if reply.status in (403, 404, 405):
        raise _refused(f"this engine cannot label its weights (HTTP {reply.status}), as vLLM before 0.27")
    _demand(reply, "label its weights")


def _check(port: int, checkpoint: Checkpoint, fingerprint: Fingerprint, timeout_s: float) -> None:
    arguments = [checkpoint.uri, checkpoint.digest, layout_digest(fingerprint.tensors)]
    reply = post_to_engine(port, "/collective_rpc", {"method": "tracker_check", "args": arguments}, timeout_s=timeout_s)
    if reply.status in (403, 404):
        raise _refused(f"the engine was started without swap support (HTTP {reply.status})")
    for result in _results(reply, "check the weights"):
        reason = result.get("refused")
        if reason:
            raise _refused(str(reason))
        if reason is None:
            raise _failed("check the weights", reply)


def _pause(port: int, timeout_s: float) -> None:
    reply = post_to_engine(port, "/pause?mode=wait", timeout_s=timeout_s)
    if reply.is_ok:
        return
    if post_to_engine(port, "/resume", timeout_s=STEP_TIMEOUT_S).is_ok:
        raise _refused(f"the engine did not pause: {reply.text}")
    raise _failed("pause", reply)


def _load(port: int, checkpoint: Checkpoint, tensors: int, timeout_s: float) -> tuple[str, ...]:
    """Load the weights, and return the names of the repacked modules."""
    reply = post_to_engine(port, "/collective_rpc", {"method": "tracker_load"}, timeout_s=timeout_s)
    results = _results(reply, "load the weights")
    if any((r.get("digest"), r.get("tensors")) != (checkpoint.digest, tensors) for r in results):
        raise _failed("load the requested weights", reply)
    return tuple(sorted({str(name) for result in results for name in result.get("repacked", ())}))


def _label(port: int, digest: str) -> None:
    """Set the engine's weight version to the digest, and check that the engine reports it."""
    _demand(
        post_to_engine(port, "/update_weight_version", {"new_version": digest}, timeout_s=STEP_TIMEOUT_S),
        "set its weight version",
    )
    reply = get(port, "/weight_info", timeout_s=STEP_TIMEOUT_S)
    if not isinstance(reply.body, dict) or reply.body.get("weight_version") != digest:
        raise _failed("report its weight version", reply)


def _results(reply: EngineReply, what: str) -> list[Mapping[str, Any]]:
    """Return the results of all workers, at least one."""
    results = reply.body.get("results") if reply.is_ok and isinstance(reply.body, dict) else None
    if not isinstance(results, list) or not results or not all(isinstance(result, dict) for result in results):
        raise _failed(what, reply)
    return results


def _demand(reply: EngineReply, what: str) -> None:
    said_no = isinstance(reply.body, dict) and reply.body.get("success") is False
    if not reply.is_ok or said_no:
        raise _failed(what, reply)


def _refused(reason: str) -> SwapRefused:
    return SwapRefused(f"weights not swapped: {reason}", hint="restarting the engine with them")


def _failed(what: str, reply: EngineReply) -> SwapFailed:
    said = f"HTTP {reply.status}: {reply.text}" if reply.status else reply.text
    return SwapFailed(
        f"the engine failed to {what} ({said})",
        hint="engine state unknown; restarting it",
    )
