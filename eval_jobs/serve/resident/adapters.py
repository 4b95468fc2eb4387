"""Puts adapters of one base into a running engine, and takes them out again.

An engine with adapters answers requests for its base too, and on a CPU such a request in one batch with an adapter's
gets the adapter's answer. So nobody is ever told the base's name in such an engine, and a base that is a checkpoint
itself is served by an engine that has no adapters at all.
"""

from __future__ import annotations

from eval_jobs.errors import SwapFailed, SwapRefused
from eval_jobs.serve.process.control import post_to_engine

UNLOAD_TIMEOUT_S = 30.0


def load_adapter(port: int, name: str, folder: str, *, timeout_s: float) -> None:
    """Load the adapter in `folder` under a name that the engine does not know yet.

    Raises:
        SwapRefused: it was not loaded; what the engine served before, it still does.
        SwapFailed: it did not say.
    """
    reply = post_to_engine(port, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder}, timeout_s=timeout_s)
    if not reply.status:
        raise SwapFailed(f"the engine was asked to load an adapter: {reply.text}", hint="it is started anew")
    if not reply.is_ok:
        raise SwapRefused(
            f"the engine does not take the adapter {folder} while it runs: {reply.text}", hint="it is started anew"
        )


def unload_adapter(port: int, name: str) -> None:
    """Take an adapter out.

    Raises:
        SwapRefused: the engine keeps it.
    """
    reply = post_to_engine(port, "/v1/unload_lora_adapter", {"lora_name": name}, timeout_s=UNLOAD_TIMEOUT_S)
    if not reply.is_ok:
        raise SwapRefused(f"the engine does not let go of an adapter: {reply.text}", hint="it is started anew")
