"""What a hostile endpoint can say: bodies of completions, lists of models and streams."""

import json
import random
from collections.abc import Callable

COMPLETION, MODELS, STREAM = "completion", "models", "stream"
MODEL = "m"


def completion(content: str, pick: random.Random) -> bytes:
    """Return the body of a completion."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}
    if content in MESSAGES:
        choice["message"] = {"role": "assistant", "content": MESSAGES[content]}
    choice |= CHOICES.get(content, {})
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    body |= {"usage": USAGES.get(content, {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})}
    text = json.dumps(body | CHANGES.get(content, {})).encode()
    made = {"noise": pick.randbytes(pick.randint(0, 5000)), "cut JSON": text[: pick.randrange(1, 50)]}
    return (RAW | made).get(content, text)


def models(content: str, _: random.Random) -> bytes:
    """Return the body of a list of models."""
    if content == "good":
        return json.dumps({"object": "list", "data": [{"id": MODEL}]}).encode()
    return RAW.get(content, json.dumps(MODEL_LISTS.get(content)).encode())


def stream(content: str, _: random.Random) -> bytes:
    """Return the body of a streamed answer."""
    if content in STREAMS:
        return STREAMS[content]
    usage = USAGES.get(content, {"prompt_tokens": 3, "completion_tokens": 2})
    events = EVENTS.get(content, (FIRST, LAST, {"choices": [], "usage": usage}))
    lines = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return lines if content == "no end" else lines + b"data: [DONE]\n\n"


USAGES: dict[str, object] = {
    "huge usage": {"prompt_tokens": 10**30, "completion_tokens": 2, "total_tokens": 10**30},
    "negative usage": {"prompt_tokens": -1, "completion_tokens": -5, "total_tokens": -6},
    "NaN usage": {"prompt_tokens": float("nan"), "completion_tokens": 2, "total_tokens": float("inf")},
    "text usage": {"prompt_tokens": "3", "completion_tokens": "two", "total_tokens": "5"},
    "fraction usage": {"prompt_tokens": 3.5, "completion_tokens": 2.0, "total_tokens": 5.5},
    "true usage": {"prompt_tokens": True, "completion_tokens": False, "total_tokens": True},
    "list usage": [1, 2, 3],
    "word usage": "none",
    "detail usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": "x"},
    "half usage": {"prompt_tokens": 3},
}
MESSAGES: dict[str, object] = {
    "half surrogate": "42\ud83d",
    "NUL": "42\x00",
    "number content": 42,
    "list content": [1, 2],
    "map content": {"text": "42"},
    "null content": None,
    "20 MB": "42" * (10 << 20),
    "2 MB": "4\n" * (1 << 20),
}
GOOD_CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}}
CHANGES: dict[str, dict[str, object]] = {
    "no choices": {"choices": []},
    "null choices": {"choices": None},
    "text choices": {"choices": "42"},
    "map choices": {"choices": {"0": "42"}},
    "number choice": {"choices": [42]},
    "number id": {"id": 5},
    "list model": {"model": ["m"]},
    "two choices": {"choices": [GOOD_CHOICE, GOOD_CHOICE | {"index": -1, "finish_reason": "abort"}]},
    "many choices": {"choices": [GOOD_CHOICE] * 100_000},
    "error beside": {"error": {"message": "engine died", "code": 500}},
}
CHOICES: dict[str, dict[str, object]] = {
    "no finish": {"finish_reason": None},
    "abort": {"finish_reason": "abort"},
    "list finish": {"finish_reason": ["stop"]},
    "number finish": {"finish_reason": 1},
    "text index": {"index": "zero"},
    "odd logprobs": {"logprobs": {"content": "x"}},
    "text message": {"message": "42"},
    "list message": {"message": ["42"]},
}
FIRST = {"choices": [{"index": 0, "text": "4", "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "text": "2", "finish_reason": "length"}]}
EVENTS: dict[str, tuple[object, ...]] = {
    "no end": (FIRST, FIRST),
    "error event": (FIRST, {"error": {"message": "died \ud83d\x00"}}),
    "aborted": (FIRST, {"choices": [{"text": "", "finish_reason": "abort"}]}),
    "no objects": (FIRST, [1, 2]),
    "odd choices": ({"choices": 5}, {"choices": "text"}),
}
STREAMS = {
    "one endless line": b"data: " + b"x" * (8 << 20),
    "endless events": b'data: {"choices": [{"text": ""}]}\n' * 300_000,
}
RAW = {
    "empty": b"",
    "null": b"null",
    "HTML": b"<html>bad gateway</html>",
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "digits": b'{"id": ' + b"9" * 50_000 + b"}",
    "bad UTF-8": b'{"choices": [{"message": {"content": "\xff"}}]}',
    "many values": b"[" + b"[]," * 3_000_000 + b"[]]",
}
MODEL_LISTS: dict[str, object] = {
    "other model": {"data": [{"id": "another"}]},
    "no data": {"models": []},
    "text data": {"data": "m"},
    "odd ids": {"data": [{"id": 5}, {"id": None}, 7, {"id": ["m"]}]},
    "long id": {"data": [{"id": "m" * 3_000_000}, {"id": "\ud83d"}]},
}
EITHER = {"number id", "list model", "text index", "odd logprobs", "half usage"}
"""An answer that can be read in spite of them may count or fail."""

SOUND_CONTENTS = {
    COMPLETION: {"good", "half surrogate", "NUL", *USAGES, *EITHER},
    MODELS: {"good"},
    STREAM: {"good", *USAGES},
}
CONTENTS = {
    COMPLETION: ("good", *USAGES, *MESSAGES, *CHANGES, *CHOICES, *RAW, "noise", "cut JSON"),
    MODELS: ("good", *RAW, *MODEL_LISTS),
    STREAM: ("good", *USAGES, *EVENTS, *STREAMS),
}
BODIES: dict[str, Callable[[str, random.Random], bytes]] = {COMPLETION: completion, MODELS: models, STREAM: stream}
