"""Messages between the evaluator and its child: one JSON object per line, over the child's stdin and stdout.

    parent -> child   a request (`task_config.evaluate_request`) of one or more tasks
    child -> parent   {"type": "progress", "benchmark": "sums", "done": 3, "total": 20}   any number
                      {"type": "result", "benchmark": "sums", "asking_s": 9.5, "metric": "accuracy", "planned": 20}  or
                      {"type": "error", "benchmark": "sums", "asking_s": 9.5, "code": ..., "message": ..., "hint": ...}
Messages of different benchmarks are interleaved. The next request may follow when every task has its result or error.
Samples are not sent: they are in the run's folder, from which an interrupted evaluation resumes.
"""

import json
from dataclasses import dataclass
from typing import Any

from eval_jobs import errors

MADE_BY_FILE = "made_by.jsonl"
PLANNED_FILE = "planned.jsonl"
FAILURES_FILE = "failures.jsonl"

Message = dict[str, Any]

_ERRORS: dict[str, type[errors.TrackerError]] = {
    kind.code: kind
    for kind in (
        errors.EvaluateError,
        errors.UnknownBenchmark,
        errors.BadData,
        errors.EndpointFailed,
        errors.EndpointRefused,
        errors.EvaluatorDied,
        errors.StoreError,
        errors.DiskFull,
    )
}


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Pauses in seconds before each retry, by kind of failure; after the last pause there is no retry."""

    broken_s: tuple[float, ...] = (0.5, 1.5)
    """After a broken connection or response."""
    busy_s: tuple[float, ...] = (1.0, 4.0, 16.0)
    """After a response that the server is busy."""
    lost_s: tuple[float, ...] = (5.0, 20.0)
    """Before each further pass over the samples without an answer, if the server responds."""


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """Return the message in one line, or None if it is not a message."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if isinstance(message, dict) and "type" in message:
        return message
    return None


def error_message(error: errors.TrackerError) -> Message:
    """Return the message for an error."""
    return {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}


def error_of(message: Message, *, logs: str) -> errors.TrackerError:
    """Return the error in a message; its hint ends with `logs`."""
    kind = _ERRORS.get(str(message.get("code")), errors.EvaluateError)
    return kind(str(message["message"]), hint=f"{message['hint']}; {logs}")
