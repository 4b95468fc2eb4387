"""Loads the weights of another checkpoint into a running engine, and proves that they are the right ones.

    resident = swap(port, checkpoint, resident, timeout_s=60)

    compare with the resident (our process)          SwapRefused: nothing was changed
    label routes: present?                           SwapRefused: nothing was changed
    check: files complete, digest, layout, finite    SwapRefused: nothing was changed
    pause -> load -> reset the prefix cache -> label -> resume      SwapFailed: the engine is unusable

Check and load run in the engine's own workers (`worker_extension/tracker_worker`). Both hash the bytes that they
read. On every worker, the hash of the loaded bytes must be the checkpoint's digest.
"""

import os
from collections.abc import Mapping
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


def swap(port: int, checkpoint: Checkpoint, resident: Fingerprint | None, *, timeout_s: float) -> Fingerprint:
    """Load `checkpoint` into the engine on `port`, which holds `resident`, and return what it holds now.

    Requests in flight must finish soon. The caller must have checked that this kind of model may be swapped
    (`fingerprint.never_swapped`, a certificate).

    The engine was started with `extension_args` and `extension_environment`. `timeout_s`: separate limit for checking,
    for waiting until requests have finished, and for loading.

    Raises:
        SwapRefused: nothing was changed; the engine serves what it did before.
        SwapFailed: the engine is unusable.
    """
    fingerprint = compared(Path(checkpoint.uri), resident)
    _demand_label_routes(port)
    _check(port, checkpoint, fingerprint, timeout_s)
    _pause(port, timeout_s)
    _load(port, checkpoint, len(fingerprint.tensors), timeout_s)
    demand(post_to_engine(port, "/reset_prefix_cache", timeout_s=STEP_TIMEOUT_S), "reset its prefix cache")
    _label(port, checkpoint.digest)
    demand(post_to_engine(port, "/resume", timeout_s=STEP_TIMEOUT_S), "resume")
    return fingerprint


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


def compared(folder: Path, resident: Fingerprint | None) -> Fingerprint:
    """Return the fingerprint of a model that fits into an engine that holds `resident`.

    Raises:
        SwapRefused: it does not fit, or `resident` is not known.
    """
    try:
        fingerprint = fingerprint_of(folder)
    except CheckpointUnreadable as error:
        raise swap_refused(error.message) from error
    reason = "the engine's weights are unknown" if resident is None else obstacle(resident, fingerprint)
    if reason:
        raise swap_refused(f"{folder} does not match the model of the running engine: {reason}")
    return fingerprint


def _demand_label_routes(port: int) -> None:
    """Set the engine's weight version to what it is: versions of vLLM without these routes are never swapped into."""
    reply = get(port, "/weight_info", timeout_s=STEP_TIMEOUT_S)
    held = reply.body.get("weight_version") if isinstance(reply.body, dict) else None
    if reply.is_ok and held is not None:
        reply = post_to_engine(port, "/update_weight_version", {"new_version": held}, timeout_s=STEP_TIMEOUT_S)
    elif reply.is_ok:
        raise swap_refused("the engine reports no weight version")
    if reply.status in (403, 404, 405):
        raise swap_refused(f"this engine cannot label its weights (HTTP {reply.status}), as vLLM before 0.27")
    demand(reply, "label its weights")


def _check(port: int, checkpoint: Checkpoint, fingerprint: Fingerprint, timeout_s: float) -> None:
    arguments = [checkpoint.uri, checkpoint.digest, layout_digest(fingerprint.tensors)]
    reply = post_to_engine(port, "/collective_rpc", {"method": "tracker_check", "args": arguments}, timeout_s=timeout_s)
    if reply.status in (403, 404):
        raise swap_refused(f"the engine was started without swap support (HTTP {reply.status})")
    for result in _results(reply, "check the weights"):
        reason = result.get("refused")
        if reason:
            raise swap_refused(str(reason))
        if reason is None:
            raise _cannot("check the weights", reply)


def _pause(port: int, timeout_s: float) -> None:
    reply = post_to_engine(port, "/pause?mode=wait", timeout_s=timeout_s)
    if reply.is_ok:
        return
    if post_to_engine(port, "/resume", timeout_s=STEP_TIMEOUT_S).is_ok:
        raise swap_refused(f"the engine did not pause: {reply.text}")
    raise _cannot("pause", reply)


def _load(port: int, checkpoint: Checkpoint, tensors: int, timeout_s: float) -> None:
    reply = post_to_engine(port, "/collective_rpc", {"method": "tracker_load"}, timeout_s=timeout_s)
    results = _results(reply, "load the weights")
    if any((r.get("digest"), r.get("tensors")) != (checkpoint.digest, tensors) for r in results):
        raise _cannot("load the requested weights", reply)


def _label(port: int, digest: str) -> None:
    """Set the engine's weight version to the digest, and check that the engine reports it."""
    reply = post_to_engine(port, "/update_weight_version", {"new_version": digest}, timeout_s=STEP_TIMEOUT_S)
    demand(reply, "set its weight version")
    reply = get(port, "/weight_info", timeout_s=STEP_TIMEOUT_S)
    if not isinstance(reply.body, dict) or reply.body.get("weight_version") != digest:
        raise _cannot("report its weight version", reply)


def _results(reply: EngineReply, what: str) -> list[Mapping[str, Any]]:
    results = reply.body.get("results") if reply.is_ok and isinstance(reply.body, dict) else None
    if not isinstance(results, list) or not results or not all(isinstance(result, dict) for result in results):
        raise _cannot(what, reply)
    return results


def demand(reply: EngineReply, what: str) -> None:
    """Raise SwapFailed unless the engine did `what` was requested."""
    if not reply.is_done:
        raise _cannot(what, reply)


def swap_refused(reason: str) -> SwapRefused:
    """Return the error of weights that were not touched."""
    return SwapRefused(f"weights not swapped: {reason}", hint="restarting the engine with them")


def swap_failed(reason: str) -> SwapFailed:
    """Return the error of an engine that may hold anything now."""
    return SwapFailed(reason, hint="engine state unknown; restarting it")


def _cannot(what: str, reply: EngineReply) -> SwapFailed:
    return swap_failed(f"the engine failed to {what} ({reply.words})")
