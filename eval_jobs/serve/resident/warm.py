"""Loads a checkpoint into a running engine: wakes it, swaps its weights or loads the adapter.

An engine with adapters accepts requests for its base, too. On a CPU, such a request in one batch with an adapter's
gets the adapter's output. So no client gets the base's name in such an engine, and a base that is itself a checkpoint
is served by an engine without adapters.
"""

import secrets

from eval_jobs.errors import SwapFailed, SwapRefused
from eval_jobs.serve.process.control import post_to_engine
from eval_jobs.serve.process.launch import KEPT_ADAPTERS
from eval_jobs.serve.resident.loaded import Loaded, Resident, identity
from eval_jobs.serve.resident.order import Order
from eval_jobs.serve.resident.sleeping import DROP_WEIGHTS, wake
from eval_jobs.serve.resident.strategy import STAY, SWAP, LoadStrategy
from eval_jobs.serve.resident.swap import STEP_TIMEOUT_S, swap
from eval_jobs.serve.weights.digest_check import DigestCheck

UNLOAD_TIMEOUT_S = 30.0


def load_into(resident: Resident, order: Order, strategy: LoadStrategy) -> Loaded:
    """Load `order` by `strategy`, which is not `cold`, and return it; without canaries unless it was already loaded.

    Raises:
        SwapRefused: the engine does not accept it.
        SwapFailed: it is no longer known what the engine holds.
        CheckpointUnreadable: an adapter's weights are not those that were pinned.
    """
    if resident.asleep and resident.asleep != DROP_WEIGHTS:
        wake(resident.launch.port)
        resident.asleep = 0
    if strategy.method == STAY:
        _begin_afresh(resident.launch.port)
        return resident.loaded[identity(order.checkpoint)]
    if strategy.method == SWAP:
        return _swapped(resident, order, strategy)
    return _adapter(resident, order, strategy)


def load_adapter(port: int, name: str, folder: str, *, timeout_s: float) -> None:
    """Load the adapter in `folder` under a name that is new to the engine.

    Raises:
        SwapRefused: it was not loaded; the engine still serves what it served before.
        SwapFailed: there was no response.
    """
    reply = post_to_engine(port, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}, timeout_s=timeout_s)
    if not reply.status:
        raise SwapFailed(f"the engine did not confirm loading an adapter: {reply.text}", hint="restarting it")
    if not reply.is_ok:
        raise SwapRefused(f"the running engine rejected the adapter {folder}: {reply.text}", hint="restarting it")


def unload_adapter(port: int, name: str) -> None:
    """Unload an adapter.

    Raises:
        SwapRefused: the engine did not unload it.
    """
    reply = post_to_engine(port, "/v1/unload_lora_adapter", {"lora_name": name}, timeout_s=UNLOAD_TIMEOUT_S)
    if not reply.is_ok:
        raise SwapRefused(f"the engine cannot unload an adapter: {reply.text}", hint="restarting it")


def _begin_afresh(port: int) -> None:
    """Wait for requests of the last service to finish, and empty the prefix cache, as after a start or a swap.

    Both change how outputs are computed: in bfloat16 they depend on the rest of the batch.
    """
    for path in ("/pause?mode=wait", "/reset_prefix_cache", "/resume"):
        reply = post_to_engine(port, path, timeout_s=STEP_TIMEOUT_S)
        if not reply.is_done:
            raise SwapRefused(f"cannot reset the engine's prefix cache: {reply.text}", hint="restarting it")


def _swapped(resident: Resident, order: Order, strategy: LoadStrategy) -> Loaded:
    port = resident.launch.port
    if resident.asleep:
        wake(port, "weights")
    resident.loaded.clear()
    resident.model = swap(port, order.checkpoint, resident.model, timeout_s=order.spec.startup_timeout_s)
    if resident.asleep:
        wake(port, "kv_cache")
    resident.asleep = 0
    return Loaded(
        checkpoint=order.checkpoint,
        model=resident.launch.name,
        method=strategy.method,
        certificate=strategy.certificate,
    )


def _adapter(resident: Resident, order: Order, strategy: LoadStrategy) -> Loaded:
    port = resident.launch.port
    with DigestCheck(order.checkpoint) as check:
        check.demand()
        _begin_afresh(port)
        while len(resident.loaded) >= KEPT_ADAPTERS:
            oldest = next(iter(resident.loaded))
            unload_adapter(port, resident.loaded.pop(oldest).model)
        name = f"{resident.launch.name}-{secrets.token_hex(4)}"
        load_adapter(port, name, order.checkpoint.uri, timeout_s=order.spec.startup_timeout_s)
        check.demand()
    return Loaded(checkpoint=order.checkpoint, model=name, method=strategy.method, certificate=strategy.certificate)
