"""Runs work that may hang in the network, with a timeout."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises.

    A name lookup cannot be interrupted, so `work` runs in a thread that may outlive the call.

    Raises:
        TimeoutError: `work` had not ended after `seconds`.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            outcome.set_exception(error)

    threading.Thread(target=run, name="alert channel", daemon=True).start()
    return outcome.result(timeout=seconds)
