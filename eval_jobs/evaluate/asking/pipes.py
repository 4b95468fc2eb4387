"""The child's end of the pipes to its parent."""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from eval_jobs.evaluate.common.protocol import Message, encode

Send = Callable[[Message], None]


def own_stdout() -> Send:
    """Keep stdout for messages; what anybody else prints goes to stderr, which is the log."""
    messages = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:
            messages.write(encode(message))

    return send


def requests_from_stdin() -> queue.SimpleQueue[Message]:
    """Return the queue into which a thread puts what the parent asks; the process ends when stdin closes.

    The thread reads a descriptor of its own: EvalScope forks to score mathematics, a forked child closes `sys.stdin`,
    and that would wait for ever for the lock that a thread reading from `sys.stdin` holds.
    """
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    source = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def read() -> None:
        for line in source:
            requests.put(json.loads(line))
        # The parent is gone or wants us gone: even in the middle of an evaluation, and with all that it started.
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=read, daemon=True, name="requests").start()
    return requests
