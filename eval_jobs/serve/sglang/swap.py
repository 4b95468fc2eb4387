"""Loads the weights of another checkpoint into a running SGLang by `/update_weights_from_disk`, and checks the result.

    loaded = load_into(resident, order, strategy)

    compare with the resident, hash the files        SwapRefused: nothing was changed
    pause -> update -> flush the cache -> continue   SwapFailed: the engine is unusable
    query which model and version it serves          SwapFailed: it is not the requested one

Unlike our extension in vLLM, SGLang does not report which bytes it loaded. Other checks replace this: the files are
hashed before the update and do not change during it, the engine reports the path and the digest, its canary outputs
differ from the previous ones, and its first outputs of this kind are compared with those of a cold start.
"""

from collections.abc import Mapping
from pathlib import Path

from eval_jobs.serve.process.control import get, post_to_engine, served_model_names
from eval_jobs.serve.process.readiness import UNKNOWN_VERSION
from eval_jobs.serve.resident.loaded import Loaded, Resident, folder_state, identity
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.resident.strategy import STAY, LoadStrategy
from eval_jobs.serve.resident.swap import STEP_TIMEOUT_S, compared, demand, swap_failed, swap_refused
from eval_jobs.serve.weights.digest_check import demand_pinned_weights
from eval_jobs.types import Checkpoint


def load_weights(resident: Resident, order: Order, strategy: LoadStrategy) -> Loaded:
    """Load `order` by `strategy`, `stay` or `swap`, and return it; without canaries unless it was already loaded.

    Raises:
        SwapRefused: nothing was changed.
        SwapFailed: the engine is unusable.
        CheckpointUnreadable: the weights are not those that were pinned.
    """
    port, checkpoint = resident.launch.port, order.checkpoint
    if strategy.method == STAY:
        _flush(port)
        return resident.loaded[identity(checkpoint)]
    fingerprint = compared(Path(checkpoint.uri), resident.model)
    demand_pinned_weights(checkpoint)
    before = folder_state(checkpoint.uri)
    _update(port, checkpoint, timeout_s=order.spec.startup_timeout_s)
    if folder_state(checkpoint.uri) != before:
        raise swap_failed(f"{checkpoint.uri} changed while being loaded")
    _demand_served(port, checkpoint)
    model = _served_name(port, (resident.launch.name, checkpoint.uri))
    resident.loaded.clear()
    resident.model = fingerprint
    return Loaded(checkpoint=checkpoint, model=model, method=strategy.method, certificate=strategy.certificate)


def model_info(port: int) -> Mapping[str, object]:
    """Return what the engine reports about its model; {} if it reports nothing.

    The route has had two names; a version has one of them, or both.
    """
    for path in ("/model_info", "/get_model_info"):
        body = get(port, path, timeout_s=STEP_TIMEOUT_S).body
        if isinstance(body, dict) and "model_path" in body:
            return body
    return {}


def sglang_version(port: int) -> str:
    """Return the version that the engine reports, `UNKNOWN_VERSION` if it reports none."""
    for path in ("/server_info", "/get_server_info"):
        body = get(port, path, timeout_s=STEP_TIMEOUT_S).body
        if isinstance(body, dict) and body.get("version"):
            return str(body["version"])
    return UNKNOWN_VERSION


def _update(port: int, checkpoint: Checkpoint, *, timeout_s: float) -> None:
    pause = post_to_engine(port, "/pause_generation", {"mode": "abort"}, timeout_s=STEP_TIMEOUT_S)
    if pause.status == 404:
        raise swap_refused("this version of SGLang cannot be paused (HTTP 404)")
    demand(pause, "pause")
    weights = {"model_path": checkpoint.uri, "weight_version": checkpoint.digest, "flush_cache": True}
    update = post_to_engine(port, "/update_weights_from_disk", weights, timeout_s=timeout_s)
    if update.status == 404:
        demand(post_to_engine(port, "/continue_generation", timeout_s=STEP_TIMEOUT_S), "continue")
        raise swap_refused("this version of SGLang cannot update weights from a folder (HTTP 404)")
    demand(update, "update its weights")
    if not isinstance(update.body, dict) or update.body.get("success") is not True:
        raise swap_failed(f"the engine did not confirm the weight update: {update.text}")
    _flush(port)
    demand(post_to_engine(port, "/continue_generation", timeout_s=STEP_TIMEOUT_S), "continue")


def _flush(port: int) -> None:
    """Empty the prefix cache: its entries were computed with other weights, or change how outputs are computed."""
    demand(post_to_engine(port, "/flush_cache", timeout_s=STEP_TIMEOUT_S), "flush its cache")


def _demand_served(port: int, checkpoint: Checkpoint) -> None:
    info = model_info(port)
    for name, wanted in (("model_path", checkpoint.uri), ("weight_version", checkpoint.digest)):
        if info.get(name) != wanted:
            raise swap_failed(f"after the update the engine reports {name} {info.get(name)!r} (expected {wanted!r})")


def _served_name(port: int, expected: tuple[str, ...]) -> str:
    """Return the model name to request: an update makes the path the name, but not in every version."""
    names = served_model_names(get(port, "/v1/models", timeout_s=STEP_TIMEOUT_S).body)
    found = [name for name in expected if name in names]
    if not found:
        raise swap_failed(
            f"after the update the engine serves {', '.join(names) or 'no model'} (expected {expected[-1]})"
        )
    return found[0]
