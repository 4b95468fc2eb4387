"""What every trainer starts from: a tiny model with its tokenizer, chats to train on, and questions to ask."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.tiny_model import write_checkpoint

ROWS = 1600
QUESTIONS = 40
LLAMA_FACTORY = {
    "chats": {
        "file_name": "chats.jsonl",
        "formatting": "sharegpt",
        "columns": {"messages": "messages"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"},
    }
}
"""Its description of `chats.jsonl`."""


def write_material(folder: Path) -> None:
    """Write `base/`, `chats.jsonl`, `prompts.jsonl`, `texts.jsonl`, `preferences.jsonl` and `exam/sums.jsonl`."""
    write_checkpoint(folder / "base")
    sums = [(f"{n % 10}+{n // 10 % 10}=", str(n % 10 + n // 10 % 10)) for n in range(ROWS)]
    chats = [{"messages": [_turn("user", question), _turn("assistant", answer)]} for question, answer in sums]
    prompts = [{"prompt": [_turn("user", question)], "answer": answer} for question, answer in sums]
    preferences = [{"prompt": question, "chosen": answer, "rejected": "?"} for question, answer in sums]
    _write(folder / "chats.jsonl", chats)
    texts = [{"text": f"user: {question}\nassistant: {answer}\n"} for question, answer in sums]
    _write(folder / "prompts.jsonl", prompts)
    _write(folder / "texts.jsonl", texts)
    (folder / "dataset_info.json").write_text(json.dumps(LLAMA_FACTORY), encoding="utf-8")
    _write(folder / "preferences.jsonl", preferences)
    _write(folder / "exam" / "sums.jsonl", [{"question": q, "answer": answer} for q, answer in sums[:QUESTIONS]])


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
