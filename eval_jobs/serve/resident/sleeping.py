"""Lets an engine on an accelerator give its memory back between two checkpoints, and wakes it.

Level 1 keeps the weights in the machine's memory: for adapters, whose base is wanted again. Level 2 drops them: the
next checkpoint brings its own, and they are loaded between the two halves of the waking.
"""

from eval_jobs.errors import SwapFailed
from eval_jobs.serve.process.control import get, post_to_engine

KEEP_WEIGHTS, DROP_WEIGHTS = 1, 2
TIMEOUT_S = 300.0
"""For moving all weights between the accelerator and the machine."""


def fall_asleep(port: int, level: int) -> None:
    """Let the engine sleep; nothing is asked of it now.

    Raises:
        SwapFailed: it does not say that it sleeps.
    """
    reply = post_to_engine(port, f"/sleep?level={level}&mode=wait", timeout_s=TIMEOUT_S)
    state = get(port, "/is_sleeping", timeout_s=TIMEOUT_S) if reply.is_ok else reply
    if not (state.is_ok and isinstance(state.body, dict) and state.body.get("is_sleeping") is True):
        raise SwapFailed(f"cannot put the engine to sleep: {state.text}", hint="stopping it")


def wake_weights(port: int) -> None:
    """Give the memory of the weights back to an engine in level 2; what is in there means nothing.

    Raises:
        SwapFailed: it does not.
    """
    _wake(port, "?tags=weights", "sleeping")


def wake_cache(port: int) -> None:
    """Wake what is left after `wake_weights`, by its name: waking all would give out the memory of the weights twice.

    Raises:
        SwapFailed: it does not wake up.
    """
    _wake(port, "?tags=kv_cache", "awake")


def wake(port: int) -> None:
    """Wake an engine in level 1, with its weights.

    Raises:
        SwapFailed: it does not wake up.
    """
    _wake(port, "", "awake")


# --- private


def _wake(port: int, query: str, expected: str) -> None:
    reply = post_to_engine(port, f"/wake_up{query}", timeout_s=TIMEOUT_S)
    if not (reply.is_ok and isinstance(reply.body, dict) and reply.body.get("status") == expected):
        raise SwapFailed(f"cannot wake the engine: {reply.text}", hint="restarting it")
