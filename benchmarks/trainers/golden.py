"""What trainers left on disk, without weights, as one small JSON file: tests build the folders again from it.

python -m benchmarks.trainers.golden        # after `make test-trainers`
"""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

from benchmarks.trainers.beside import FOLDER, folder_of
from benchmarks.trainers.setups import SETUPS
from tests.requires import PROJECT
from tracker.adapters.checkpoints.files.safetensors_file import read_header
from tracker.domain.checkpoints.listing import DCP_INDEX, Header

GOLDEN = PROJECT / "tests" / "trainer_folders.json"
MAX_JSON_BYTES = 1 << 18
MAX_KEPT_BYTES = 1 << 13
"""Larger documents, such as all options of a trainer, are kept without their content."""


def main() -> None:
    """Write the file anew, from the trainers that have run."""
    found = {setup.name: _tree(folder_of(setup) / "out") for setup in SETUPS if (folder_of(setup) / "out").is_dir()}
    blocks = {}
    for name in sorted(found):
        blocks[name] = _block({file: json.dumps(content) for file, content in found[name].items()})
    text = _block(blocks)
    for folder in sorted(FOLDER.iterdir()):
        text = text.replace(f"{folder}/", "/runs/")
    GOLDEN.write_text(text + "\n", encoding="utf-8")


def _block(values: dict[str, str]) -> str:
    """Return a JSON object with one line for each of its values, which are JSON."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {value}" for name, value in values.items()) + "\n}"


def _tree(out: Path) -> dict[str, Any]:
    files = sorted(path for path in out.rglob("*") if path.is_file() and "README" not in path.name)
    return {str(path.relative_to(out)): _content(path) for path in files}


def _content(path: Path) -> object:
    """Return a JSON document, the tensors of weights, a packed index, the first lines of a log, or a size."""
    if path.suffix == ".safetensors":
        header = read_header(path)
        return {"tensors": sorted(header.tensors) if isinstance(header, Header) else []}
    if path.suffix == ".json" and path.stat().st_size <= MAX_JSON_BYTES and "tokenizer" not in path.name:
        return {"json": _shortened(json.loads(path.read_text(encoding="utf-8")))}
    if path.name == DCP_INDEX:
        return {"packed": base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()}
    if path.suffix in {".jsonl", ".csv", ".txt", ".yaml"}:
        return {"text": path.read_text(encoding="utf-8").splitlines()[:4]}
    return {"bytes": path.stat().st_size}


def _shortened(document: dict[str, Any]) -> dict[str, Any]:
    log = document.get("log_history")
    if log:
        document["log_history"] = log[:2]
    if len(json.dumps(document)) > MAX_KEPT_BYTES:
        return {}
    return document


if __name__ == "__main__":
    main()
