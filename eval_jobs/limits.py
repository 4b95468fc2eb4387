"""Limits on what folders, files, endpoints and stores of others may contain. The documentation's table is made of them.

    content = read_bytes(path, limits.DOCUMENT)     # eval_jobs.host.bounded.files: stops before it reads more

Each is far above what real training runs write, and low enough that one file or answer cannot fill the memory.
"""

from dataclasses import dataclass

KEPT_CHARS = 1000
"""Characters of a name or text of others that are kept in a gap, record, alert or log."""
MESSAGE_CHARS = 4000
"""Characters of an error's message, which may quote several."""


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
    subject="JSON file of a checkpoint: configuration, index, trainer state",
    most=32 << 20,
    beyond=f"{UNREADABLE} Of a larger trainer state, only the step is read.",
)
SERVED_FILE = Limit(subject="Tokenizer or other file beside the weights", most=256 << 20, beyond=UNREADABLE)
HEADER = Limit(subject="Header of a safetensors file", most=32 << 20, beyond=UNREADABLE)
TENSORS = Limit(subject="Tensors in a safetensors file", most=200_000, unit="tensors", beyond=UNREADABLE)
FILES = Limit(subject="Files in a checkpoint", most=50_000, unit="files", beyond=UNREADABLE)
STATE_INDEX = Limit(subject="Index of a sharded training state", most=512 << 20, beyond=UNREADABLE)
STATE_MEMORY = Limit(subject="Memory of the child process that reads a large index", most=2 << 30, beyond=UNREADABLE)
ARCHIVE_INDEX = Limit(subject="Table of contents of a torch.save file", most=16 << 20, beyond=UNREADABLE)
# YAML of this size takes a second or two.
SETTINGS = Limit(subject="File with the trainer's settings", most=128 << 10, beyond="It is ignored, with a warning.")
LOG = Limit(subject="Training log at the first start", most=256 << 20, beyond="Only its end is read.")
CURVE_POINTS = Limit(
    subject="Points of a run's curves", most=500_000, unit="points", beyond="The oldest are left out of the delivery."
)
REFUSED = "The benchmark is refused before anything is served, `E-EVAL-DATA`."

ROW = Limit(subject="Line or CSV field of a benchmark's data", most=16 << 20, beyond=REFUSED)
ROWS = Limit(subject="Rows or samples of a benchmark", most=1_000_000, unit="rows", beyond=REFUSED)
ROW_DOCUMENT = Limit(subject="JSON file of a benchmark; JSONL may be larger", most=64 << 20, beyond=REFUSED)
DATA_FILE = Limit(subject="Data file of a benchmark, in any format", most=16 << 30, beyond=REFUSED)
CARD = Limit(subject="Header of the README.md of a data folder", most=1 << 20, beyond="The rest is not read.")
UNBOUNDED = "The evaluation of the checkpoint fails, `E-SERVE-TEMPLATE`."
TEMPLATE = Limit(subject="Chat template in a file", most=1 << 20, beyond=UNBOUNDED)
TEMPLATE_TIME = Limit(subject="Processor time to render a chat template", most=3, unit="seconds", beyond=UNBOUNDED)
TEMPLATE_MEMORY = Limit(subject="Memory to render a chat template", most=512 << 20, beyond=UNBOUNDED)
NO_IMPORT = "The import is refused, `E-EVAL-DATA`."
RESULTS = Limit(subject="Results file of another program, in JSON", most=128 << 20, beyond=NO_IMPORT)
SAMPLES = Limit(subject="Samples file of another program", most=512 << 20, beyond=NO_IMPORT)
RESULT_SETTINGS = Limit(subject="Settings file of another program, in YAML", most=1 << 20, beyond=NO_IMPORT)
TASKS = Limit(subject="Tasks in a results file of lm-evaluation-harness", most=2000, unit="tasks", beyond=NO_IMPORT)
VALUES = Limit(
    subject="Values in a JSON text", most=2_000_000, unit="values", beyond="As if the file or answer were too large."
)
DEPTH = Limit(subject="Nesting of a JSON text", most=100, unit="levels", beyond="The text is not valid JSON.")
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

ANSWER = Limit(
    subject="Answer of an endpoint, decompressed; at most 64 KiB and 256 bytes per token asked for (streamed: 8 KiB)",
    most=16 << 20,
    beyond="The request has failed, and is repeated like others. It is never a score.",
)
REPLY = Limit(
    subject="Other response of an endpoint or engine, decompressed",
    most=4 << 20,
    beyond="As if there were no response.",
)
TOKENS = Limit(
    subject="Tokens that an endpoint reports for one answer",
    most=10**9,
    unit="tokens",
    beyond="Their number is unknown, and the answer counts.",
)


def cut(text: str, most: int = KEPT_CHARS) -> str:
    """Return the text, or its beginning and an ellipsis if it has more than `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most - 1].rstrip()}…"
