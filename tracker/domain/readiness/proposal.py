"""Facts about engine, model and questions -> settings that `tracker init` writes. Pure."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from eval_jobs.records.preflight import EngineEnvironment, ModelFacts, PromptLengths
from eval_jobs.types import Generation
from tracker.domain.readiness import checks

LONG_TOKENS = 8192
"""Longer models are served with this length, unless a question needs more: an engine reserves memory for it."""

GENERIC_NAME = re.compile("(output|checkpoint|ckpt|run|result|model)s?|out|输出", re.IGNORECASE)
"""Names of folders that do not tell runs apart."""


def run_name(folder: PurePath) -> str:
    """Return the name of the run in an absolute folder: its own, or that of the next folder above that is specific."""
    names = (place.name for place in (folder, *folder.parents))
    return next((name for name in names if name and not GENERIC_NAME.fullmatch(name)), folder.name)


def serve_values(model: ModelFacts | None, found: EngineEnvironment | None, longest: int) -> dict[str, object]:
    """Return the settings of [serve] for the newest checkpoint; `longest`: tokens of the longest question."""
    values: dict[str, object] = {}
    if found is not None and found.free_share is not None and found.free_share < checks.DEFAULT_MEMORY_SHARE:
        values["gpu_memory_utilization"] = checks.memory_share(found)
    if model is None:
        return values
    if model.dtype == "bfloat16" and found is not None and checks.lacks_bfloat16(found):
        values["dtype"] = "float16"
    if model.max_length is not None and model.max_length > LONG_TOKENS:
        needed = longest + checks.TEMPLATE_TOKENS + Generation().max_tokens
        values["max_model_len"] = min(model.max_length, max(LONG_TOKENS, needed))
    return values | _tokenizer_values(model)


def _tokenizer_values(model: ModelFacts) -> dict[str, object]:
    if model.tokenizer_above:
        return {"args": ("--tokenizer", model.tokenizer_above)}
    if model.tokenizer and not model.has_chat_template:
        return {"args": ("--chat-template", checks.PLAIN_TEMPLATE)}
    return {}


def suite_values(model: ModelFacts | None, longest: int) -> dict[str, object]:
    """Return the settings of [suite]: shorter answers if the usual ones do not fit into the model beside a question."""
    usual = Generation().max_tokens
    room = usual if model is None or model.max_length is None else model.max_length - longest - checks.TEMPLATE_TOKENS
    if 0 < room < usual:
        return {"max_tokens": room}
    return {}


def longest_tokens(lengths: Sequence[PromptLengths | None]) -> int:
    """Return the tokens of the longest question, 0 if none was counted."""
    return max((one.tokens[0] for one in lengths if one is not None and one.tokens), default=0)
