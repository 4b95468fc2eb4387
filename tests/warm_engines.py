"""An engine on the stand-in for vLLM, and what tests of its warmth ask of it."""

import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec
from tests.contract.engine_rules import nothing_to_show
from tests.fakes.vllm_stand_in import write_interpreter
from tests.tiny_model import checkpoint_record, write_checkpoint, write_lora

LONGEST_NAP_S = 0.03


class HastyClock(SystemClock):
    """Looks often: the stand-in starts and ends much faster than the real vLLM."""

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, LONGEST_NAP_S))


class LeapingClock(SystemClock):
    """Says that a day has passed as soon as an engine has said `words`."""

    def __init__(self, work_dir: Path, words: str) -> None:
        self._work_dir = work_dir
        self._words = words

    def monotonic_s(self) -> float:
        has_said = any(self._words in path.read_text() for path in self._work_dir.glob("engines/*.log"))
        return super().monotonic_s() + (86_400.0 if has_said else 0.0)


@dataclass
class Bench:
    """One engine, the settings it works with, and the endpoint that was served last."""

    engine: VllmEngine
    spec: ServeSpec
    folder: Path
    endpoints: list[Endpoint] = field(default_factory=list)

    def full(self, seed: int, *, config: Mapping[str, object] | None = None) -> Checkpoint:
        """Return a full checkpoint with the weights of `seed`, and `config` changed in its config.json."""
        folder = write_checkpoint(self.folder / f"checkpoint-{seed}-{len(config or {})}", seed=seed)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(config or {})))
        return checkpoint_record(folder, step=100 * seed)

    def adapter(self, seed: int, *, base: str = "base", rank: int = 4) -> Checkpoint:
        """Return an adapter with the weights of `seed` on a base of that name."""
        base_folder = self.folder / base
        if not base_folder.exists():
            write_checkpoint(base_folder, seed=len(base))
        folder = write_lora(base_folder, self.folder / f"adapter-{seed}-{base}-{rank}", rank=rank, seed=seed)
        (folder / ".pin.json").write_text(f'{{"step": {100 * seed}}}')  # as in every pin, and never the same
        return checkpoint_record(folder, step=100 * seed, base=base_folder)

    def serve(self, checkpoint: Checkpoint, **settings: Any) -> EngineInfo:
        """Serve it once, with these settings changed, and return what the endpoint says."""
        spec = replace(self.spec, **settings)
        with self.engine.serving(checkpoint, spec, progress=nothing_to_show) as endpoint:
            self.endpoints.append(endpoint)
            return endpoint.info

    def serve_all(self, *checkpoints: Checkpoint, **settings: Any) -> list[str]:
        """Serve them one after the other; return how each was loaded."""
        return [self.serve(checkpoint, **settings).load_method for checkpoint in checkpoints]

    def get(self, path: str) -> Any:
        """Ask the stand-in that served last."""
        url = self.endpoints[-1].base_url.removesuffix("/v1") + path
        with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310
            return json.load(answer)

    def set_mode(self, mode: str) -> None:
        """Let the stand-in that runs behave otherwise from now on."""
        self.get(f"/mode/{mode}")


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def bench(tmp_path: Path, work_dir: Path) -> Iterator[Bench]:
    engine = VllmEngine(work_dir, HastyClock())
    yield Bench(engine=engine, spec=ServeSpec(python=str(write_interpreter(tmp_path))), folder=tmp_path)
    engine.close()
