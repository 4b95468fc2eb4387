"""What a stack says: whether a process waits for others, for data, or for something else. Pure."""

from collections.abc import Sequence

from tracker.domain.health.processes.seen import StackFrame

_COLLECTIVES = frozenset(
    "all_reduce all_gather all_gather_into_tensor all_gather_object reduce_scatter reduce "  # noqa: SIM905 - readable
    "reduce_scatter_tensor all_to_all all_to_all_single broadcast broadcast_object_list barrier monitored_barrier "
    "scatter gather send recv all_reduce_coalesced _all_gather_base _reduce_scatter_base wait_for_everyone".split()
)
_MODULES = ("torch/distributed/", "deepspeed/comm/", "accelerate/state.py", "accelerate/utils/operations.py", "mpi4py/")
_LOADER = "torch/utils/data/"
_DATA_WAITS = frozenset(("_try_get_data", "_get_data", "get", "poll", "wait", "select"))
_BACKWARD = frozenset(("backward", "_engine_run_backward", "run_backward"))
_NEAR = 6
"""Innermost frames that say what is waited for."""
_OTHERS = (
    *("/subprocess.py", "/socket.py", "/ssl.py", "/selectors.py", "/http/client.py", "/asyncio/", "/pexpect/"),
    *("/urllib3/", "/requests/", "/httpx/", "/httpcore/", "/aiohttp/", "/botocore/", "/s3fs/", "/gcsfs/"),
)
_INSIDE = ("/torch/", "torch/", "/site-packages/", "lib/python3", "/multiprocessing/", "/threading.py")


def collective_of(stack: Sequence[StackFrame]) -> str:
    """Return the collective operation that a process is in; empty: it is in none.

    A backward pass with gradients that are reduced while it runs waits inside of C++: it counts as one.
    """
    for frame in stack:
        name = _name(frame)
        if name in _COLLECTIVES and _is_in(frame, _MODULES):
            return name
        if name in _BACKWARD and _is_in(frame, ("torch/autograd/",)):
            return "backward"
    return ""


def waits_for_data(stack: Sequence[StackFrame]) -> bool:
    """Return whether a process waits for a worker of its data loader."""
    has_loader = any(_name(frame) in ("_try_get_data", "_get_data") and _LOADER in frame.file for frame in stack)
    return has_loader and bool(stack) and _name(stack[0]) in _DATA_WAITS


def waits_for_others(stack: Sequence[StackFrame]) -> bool:
    """Return whether a process waits for a program that it started, or for an answer over the network."""
    return any(_is_in(frame, _OTHERS) for frame in stack[:_NEAR])


def is_idle_worker(stack: Sequence[StackFrame]) -> bool:
    """Return whether a worker of a data loader waits for work."""
    for frame in stack:
        if _name(frame) == "fetch" and _LOADER in frame.file:
            return False
        if _name(frame) == "_worker_loop":
            return True
    return False


def stack_place(stack: Sequence[StackFrame]) -> str:
    """Return `fsspec/asyn.py:sync (train.py:210)`: the innermost function, and where the trainer called it.

    One of the trainer itself is `load (train.py:210)`.
    """
    if not stack:
        return ""
    inner = stack[0]
    text = f"{short_file(inner.file)}:{inner.function}"
    if not _is_in(inner, _INSIDE):
        return f"{inner.function} ({short_file(inner.file)}:{inner.line})"
    for frame in stack:
        if frame.function != "<module>" and not _is_in(frame, _INSIDE):
            caller = f"{short_file(frame.file)}:{frame.line}"
            return f"{text} ({caller})"
    return text


def short_file(path: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(path.split("/")[-2:])


def stack_key(stack: Sequence[StackFrame]) -> tuple[tuple[str, str], ...]:
    """Return what is equal for two stacks at the same place; lines within the innermost function may differ."""
    return tuple((frame.file, frame.function) for frame in stack)


def _is_in(frame: StackFrame, modules: Sequence[str]) -> bool:
    return any(module in frame.file for module in modules)


def _name(frame: StackFrame) -> str:
    return frame.function.rpartition(".")[2]
