"""What the stand-in for vLLM holds: weights, adapters, pauses and sleep, with answers that depend on all of them.

Only the standard library. Answers are hashes: of the weights that are loaded, of what was read at the start and stays
(config.json, the tokenizer), of the adapter, and of the prompt. So weights that were not really loaded, or were loaded
beside another configuration, show as they do in vLLM.

Modes: `nan`, `alike` (all weights answer the same), `scrambled`, `stuck`, `other-model`, `remembers` (its prompts),
`sleepless`, `sleeps-on`, `no-adapters`, `adapter-rewritten` (by somebody, right before it is read), `no-version`,
`swap-dies`, `swap-fails`, `swap-changes-nothing`, `no-label` (as vLLM 0.20 to 0.26), `core-dies` (and the API server
lives on), `core-killed` (without a word of its own), `refuses` (every request, with 500).
"""

import argparse
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Reply = tuple[int, object]

DROPPED = "what lies in memory that nobody has written to"
HEAD_SIZE = "RuntimeError: Unsupported CPU attention configuration: head_dim=16"
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root"
)
TAGS = frozenset({"weights", "kv_cache"})
MAX_PAUSE_S = 120.0


class Model:
    """The state behind the HTTP server. Every method answers one route with status and JSON."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.mode = options.stand_in
        self._weights = weights_digest(Path(options.model))
        self._start = files_digest(Path(options.model), Path(options.tokenizer or options.model))
        self._adapters: dict[str, str] = {}
        self._checked: Path | None = None
        self._asleep: set[str] = set()
        self._awake = threading.Event()
        self._awake.set()
        self._label = "default"
        self.asked: list[str] = []
        self.calls: list[str] = []
        if options.lora_modules:
            self._adapters[options.lora_modules["name"]] = weights_digest(Path(options.lora_modules["path"]))

    def names(self) -> list[str]:
        if self.mode == "other-model":
            return ["somebody-elses-model"]
        return [self._options.served_model_name, *self._adapters]

    def state(self) -> dict[str, object]:
        return {"asked": self.asked, "calls": self.calls, "asleep": sorted(self._asleep), "names": self.names()}

    def post(self, path: str, query: str, body: Mapping[str, Any]) -> Reply:
        """Answer a POST."""
        routes: dict[str, Callable[[], Reply]] = {
            "/v1/completions": lambda: self._complete(body),
            "/pause": self._pause,
            "/resume": self._resume,
            "/reset_prefix_cache": lambda: (200, {"success": self.mode != "remembers"}),
            "/update_weight_version": lambda: self._set_label(body),
            "/collective_rpc": lambda: self._call(body),
            "/sleep": lambda: self._sleep(int(parse_qs(query)["level"][0])),
            "/wake_up": lambda: self._wake(parse_qs(query).get("tags", [])),
            "/v1/load_lora_adapter": lambda: self._load_adapter(body),
            "/v1/unload_lora_adapter": lambda: self._unload_adapter(body),
        }
        if path not in routes or not self._is_open(path) or self._is_unknown(path):
            return 404, {"detail": "Not Found"}
        self.calls.append(path + (f"?{query}" if query else ""))
        return routes[path]()

    def get(self, path: str) -> Reply | None:
        """Answer a GET of a route for developers, None for others."""
        pages: dict[str, object] = {
            "/weight_info": {"weight_version": self._label},
            "/is_sleeping": {"is_sleeping": not self._awake.is_set()},
        }
        return (200, pages[path]) if path in pages and self._is_open(path) and not self._is_unknown(path) else None

    # --- private

    def _is_open(self, path: str) -> bool:
        if path.endswith("_lora_adapter"):
            return os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") == "1" and bool(self._options.enable_lora)
        return path.startswith("/v1/") or os.environ.get("VLLM_SERVER_DEV_MODE") == "1"

    def _is_unknown(self, path: str) -> bool:
        return self.mode == "no-label" and "weight_" in path

    def _complete(self, body: Mapping[str, Any]) -> Reply:
        if body["model"] not in self.names():
            return 404, {"error": {"message": "the model does not exist", "code": 404}}
        self.asked.append(body["model"])
        if self.mode == "stuck":
            threading.Event().wait()
        if self.mode in ("core-dies", "core-killed", "refuses"):
            return self._refuse()
        if not self._awake.wait(MAX_PAUSE_S):
            return 500, {"error": {"message": "paused for ever"}}
        if self.mode == "nan" and "logprobs" in body:
            return 400, {"error": {"message": "Out of range float values are not JSON compliant"}}
        prompts = body["prompt"] if isinstance(body["prompt"][0], list) else [body["prompt"]]
        return 200, {"choices": [self._choice(row, prompt, body) for row, prompt in enumerate(prompts)]}

    def _refuse(self) -> Reply:
        lines = [f"(Worker pid=1) WorkerProc hit an exception.\n(Worker pid=1) {HEAD_SIZE}"] * (
            self.mode == "core-dies"
        )
        lines += [f"(APIServer pid=1) {DEAD}"] * (self.mode != "refuses")
        sys.stderr.writelines(f"{line}\n" for line in lines)
        sys.stderr.flush()
        return 500, {"error": {"message": "EngineCore encountered an issue.", "code": 500}}

    def _choice(self, row: int, prompt: list[int], body: Mapping[str, Any]) -> dict[str, object]:
        adapter = self._adapters.get(body["model"], "")
        held = () if self.mode == "alike" else (self._weights, self._start, adapter, self.mode == "scrambled")
        numbers = hashlib.sha256(repr((held, prompt)).encode()).digest()
        answer = numbers[: body["max_tokens"]]
        logprobs = {"token_logprobs": [-(number + 1) / 64 for number in answer]}
        return {"index": row, "text": answer.hex(), "token_ids": list(answer), "logprobs": logprobs}

    def _pause(self) -> Reply:
        self._awake.clear()
        return 200, {"status": "paused"}

    def _resume(self) -> Reply:
        self._awake.set()
        return 200, {"status": "resumed"}

    def _set_label(self, body: Mapping[str, Any]) -> Reply:
        self._label = body["new_version"]
        return 200, {"success": True}

    def _call(self, body: Mapping[str, Any]) -> Reply:
        if body["method"] == "tracker_check":
            return 200, {"results": [{"refused": self._check(*body["args"])}]}
        if self.mode == "swap-dies":
            os._exit(9)
        if self.mode == "swap-fails" or self._checked is None:
            return 500, {"error": {"message": "RuntimeError: size mismatch for lm_head"}}
        folder, digest = self._checked, weights_digest(self._checked)
        if self.mode != "swap-changes-nothing":
            self._weights = digest
        return 200, {"results": [{"digest": digest, "tensors": tensor_count(folder), "repacked": []}]}

    def _check(self, path: str, digest: str, layout: str) -> str:  # noqa: ARG002 - as the real one is called
        self._checked = Path(path)
        found = weights_digest(self._checked)
        return "" if found == digest else f"the weights in {path} changed: SHA-256 is {found}"

    def _sleep(self, level: int) -> Reply:
        if not self._options.enable_sleep_mode or self.mode == "sleepless":
            return 500, {"error": {"message": "Sleep mode is not enabled"}}
        self._awake.clear()
        self._asleep = set(TAGS)
        if level == 2:
            self._weights = DROPPED
        return 200, {"status": "sleeping", "level": level}

    def _wake(self, tags: list[str]) -> Reply:
        if self.mode == "sleeps-on":
            return 500, {"error": {"message": "CUDA error: out of memory"}}
        if set(tags or TAGS) - self._asleep:
            return 500, {"error": {"message": f"{tags} of {self._asleep}: memory would be mapped twice"}}
        self._asleep -= set(tags or TAGS)
        if not self._asleep:
            self._awake.set()
        return 200, {"status": "sleeping" if self._asleep else "awake", "tags": tags or None}

    def _load_adapter(self, body: Mapping[str, Any]) -> Reply:
        name, folder = body["lora_name"], Path(body["lora_path"])
        if name in self._adapters:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
        if not (folder / "adapter_config.json").is_file():
            return 404, {"error": {"message": f"Loading lora {name} failed: No adapter found for {folder}"}}
        if self.mode == "no-adapters":
            return 500, {"error": {"message": "the adapter has a module that cannot be served"}}
        if self.mode == "adapter-rewritten":
            _change_last_byte(folder / "adapter_model.safetensors")
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
        if rank > int(self._options.max_lora_rank):
            return 500, {"error": {"message": f"LoRA rank {rank} is greater than max_lora_rank"}}
        self._adapters[name] = "wrong" if self.mode == "swap-changes-nothing" else weights_digest(folder)
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _unload_adapter(self, body: Mapping[str, Any]) -> Reply:
        if self._adapters.pop(body["lora_name"], None) is None:
            return 404, {"error": {"message": "The lora adapter cannot be found."}}
        return 200, "removed"


def _change_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def weights_digest(folder: Path) -> str:
    """Return the hash of the weights, as the tracker takes it."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def files_digest(model: Path, tokenizer: Path) -> str:
    """Return the hash of what an engine reads at its start only."""
    found = [
        path for folder in (model, tokenizer) for path in sorted(folder.glob("*.json")) if "index" not in path.name
    ]
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()


def tensor_count(folder: Path) -> int:
    """Return how many tensors the files hold."""
    count = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        count += len(header.keys() - {"__metadata__"})
    return count
