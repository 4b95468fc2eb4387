"""What the evaluator and its child say to each other: one JSON object a line, over the child's stdin and stdout.

    parent -> child   a request (`task_config.evaluate_request`), of one task or several
    child -> parent   {"type": "progress", "benchmark": "sums", "done": 3, "total": 20}   any number
                      {"type": "result", "benchmark": "sums", "asking_s": 9.5, "metric": "accuracy", "planned": 20}  or
                      {"type": "error", "benchmark": "sums", "asking_s": 9.5, "code": ..., "message": ..., "hint": ...}
The benchmarks' messages mix. One request at a time: the next one may follow when every task has its result or error.
Samples do not travel here: they lie in the run's folder, where a killed evaluation finds them again.
"""

import json
from typing import Any

from eval_jobs.errors import (
    BadData,
    DiskFull,
    EndpointFailed,
    EndpointRefused,
    EvaluateError,
    EvaluatorDied,
    StoreError,
    TrackerError,
    UnknownBenchmark,
)

MADE_BY_FILE = "made_by.jsonl"
PLANNED_FILE = "planned.jsonl"
FAILURES_FILE = "failures.jsonl"

Message = dict[str, Any]

_ERRORS: dict[str, type[TrackerError]] = {
    kind.code: kind
    for kind in (
        EvaluateError,
        UnknownBenchmark,
        BadData,
        EndpointFailed,
        EndpointRefused,
        EvaluatorDied,
        StoreError,
        DiskFull,
    )
}


def encode(message: Message) -> bytes:
    """Return one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """Read one line; None for anything that is no message."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if isinstance(message, dict) and "type" in message:
        return message
    return None


def error_message(error: TrackerError) -> Message:
    """Return the message that carries an error over."""
    return {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}


def error_of(message: Message, *, logs: str) -> TrackerError:
    """Return the error that a message carries; its hint ends with the logs to read."""
    kind = _ERRORS.get(str(message.get("code")), EvaluateError)
    return kind(str(message["message"]), hint=f"{message['hint']}; {logs}")
