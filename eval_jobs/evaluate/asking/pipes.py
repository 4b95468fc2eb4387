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
    """Reserve stdout for messages; everything else printed goes to stderr, which is the log."""
    messages = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:
            messages.write(encode(message))

    return send


def requests_from_stdin() -> queue.SimpleQueue[Message]:
    """Return a queue that a thread fills with the parent's requests; the process ends when stdin closes.

    The thread reads a descriptor of its own. EvalScope forks to score mathematics, and a forked child closes
    `sys.stdin`: that would wait forever for the lock of a thread that reads from `sys.stdin`.
    """
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    source = os.fdopen(os.dup(0), "rb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)

    def read() -> None:
        for line in source:
            requests.put(json.loads(line))
        # The parent has ended or closed the pipe: end even during an evaluation, with all processes started here.
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os._exit(0)

    threading.Thread(target=read, daemon=True, name="requests").start()
    return requests
