"""Puts an engine on an accelerator to sleep between two checkpoints, to free its memory, and wakes it.

Level 1 keeps the weights in host memory: for adapters, whose base is needed again. Level 2 discards them: the next
checkpoint brings its own, and they are loaded between the two steps of waking up.
"""

from eval_jobs.errors import SwapFailed
from eval_jobs.serve.process.control import get, post_to_engine

KEEP_WEIGHTS, DROP_WEIGHTS = 1, 2
TIMEOUT_S = 300.0
"""Timeout for moving all weights between accelerator and host memory."""


def fall_asleep(port: int, level: int) -> None:
    """Put the idle engine to sleep.

    Raises:
        SwapFailed: it does not report that it sleeps.
    """
    reply = post_to_engine(port, f"/sleep?level={level}&mode=wait", timeout_s=TIMEOUT_S)
    state = get(port, "/is_sleeping", timeout_s=TIMEOUT_S) if reply.is_ok else reply
    if not (state.is_ok and isinstance(state.body, dict) and state.body.get("is_sleeping") is True):
        raise SwapFailed(f"cannot put the engine to sleep: {state.text}", hint="stopping it")


def wake_weights(port: int) -> None:
    """Allocate the memory of the weights again in an engine in level 2; its content is undefined.

    Raises:
        SwapFailed: it does not wake up.
    """
    _wake(port, "?tags=weights", "sleeping")


def wake_cache(port: int) -> None:
    """Wake the rest after `wake_weights`, by its tag: waking all would allocate the memory of the weights twice.

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


def _wake(port: int, query: str, expected: str) -> None:
    reply = post_to_engine(port, f"/wake_up{query}", timeout_s=TIMEOUT_S)
    if not (reply.is_ok and isinstance(reply.body, dict) and reply.body.get("status") == expected):
        raise SwapFailed(f"cannot wake the engine: {reply.text}", hint="restarting it")
