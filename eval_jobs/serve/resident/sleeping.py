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


def wake(port: int, tag: str = "") -> None:
    """Wake an engine in level 1 with its weights, or one in level 2 in two steps, named by their tags.

    `weights` allocates their memory, whose content is undefined; then `kv_cache` wakes the rest. Without a tag, an
    engine in level 2 would allocate the memory of the weights twice.

    Raises:
        SwapFailed: it does not wake up.
    """
    path, expected = "/wake_up", "awake"
    if tag:
        path = f"/wake_up?tags={tag}"
    if tag == "weights":
        expected = "sleeping"
    reply = post_to_engine(port, path, timeout_s=TIMEOUT_S)
    if not (reply.is_ok and isinstance(reply.body, dict) and reply.body.get("status") == expected):
        raise SwapFailed(f"cannot wake the engine: {reply.text}", hint="restarting it")
