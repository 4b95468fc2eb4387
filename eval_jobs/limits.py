"""Limits on what folders, files, endpoints and stores of others may contain. The documentation's table is made of them.

    content = read_bytes(path, limits.DOCUMENT)     # eval_jobs.host.bounded: stops before it reads more

Each is far above what real training runs write, and low enough that one file or answer cannot fill the memory.
"""

from dataclasses import dataclass

KEPT_CHARS = 1000
"""Characters of a name or message of others that are kept in a gap, record, alert or log."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much of one thing is accepted."""

    subject: str
    most: int
    unit: str = "bytes"
    beyond: str
    """What happens beyond it, as a sentence."""


UNREADABLE = "The checkpoint is a gap, `E-CKPT-UNREADABLE`."

DOCUMENT = Limit(
    subject="JSON file of a checkpoint: configuration, index, trainer state", most=64 << 20, beyond=UNREADABLE
)
VALUES = Limit(
    subject="Values in a JSON text", most=2_000_000, unit="values", beyond="As if the file or answer were too large."
)
DIGITS = Limit(
    subject="Digits of a whole number in a JSON text", most=100, unit="digits", beyond="The text is not valid JSON."
)
MLFLOW_ANSWERS = Limit(
    subject="Answers of MLflow to one write", most=32 << 20, beyond="As if MLflow did not respond: it is sent later."
)
CHANNEL_ANSWER = Limit(
    subject="Answer of a notification service or mail server", most=64 << 10, beyond="The rest is not read."
)
S3_OBJECTS = Limit(subject="Objects below a prefix", most=500_000, unit="objects", beyond="As if S3 did not respond.")
S3_ANSWER = Limit(subject="Page of a bucket's listing", most=16 << 20, beyond="As if S3 did not respond.")


def cut(text: str) -> str:
    """Return the text, or its beginning and an ellipsis if it is longer than `KEPT_CHARS`."""
    return text if len(text) <= KEPT_CHARS else f"{text[: KEPT_CHARS - 1]}…"
