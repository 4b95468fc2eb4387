"""One real vLLM that serves checkpoints one after the other, with what each of them answered.

    with plain_series(folder) as series:
        cold_b, cold_a = (info.canaries for info in series.infos[:2])

The only one on plain weights in a run: `served`, `server` and others of tests/integration are it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from eval_jobs.host.clock import SystemClock
from eval_jobs.serve.resident.loaded import Resident
from eval_jobs.serve.resident.vllm import VllmEngine
from eval_jobs.types import Checkpoint, Endpoint, EngineInfo, ServeSpec
from tests.contract.engine_rules import check_endpoint, nothing_to_show
from tests.tiny_model import checkpoint_record, write_checkpoint

SPEC = ServeSpec(max_model_len=256)
PROMPTS = [f"{n} + {n * n} =" for n in range(20)] + ["a long prompt " * 13]
"""The last one is longer than a block of the engine's cache of prompts."""


@dataclass
class Series:
    """What was served by one engine, one after the other."""

    engine: VllmEngine
    work_dir: Path
    infos: list[EngineInfo] = field(default_factory=list)
    answers: list[list[tuple[Any, ...]]] = field(default_factory=list)

    @contextmanager
    def serving(self, checkpoint: Checkpoint) -> Iterator[Endpoint]:
        """Have it serve a checkpoint."""
        with self.engine.serving(checkpoint, SPEC, progress=nothing_to_show) as endpoint:
            yield endpoint

    def serve(self, checkpoint: Checkpoint) -> None:
        """Serve it once, and note what it answers."""
        with self.serving(checkpoint) as endpoint:
            check_endpoint(endpoint)
            self.infos.append(endpoint.info)
            self.answers.append(ask_all(endpoint, PROMPTS))

    @property
    def methods(self) -> list[str]:
        """How each was loaded."""
        return [info.load_method for info in self.infos]

    @property
    def resident(self) -> Resident:
        """What is in the engine now."""
        assert self.engine._resident is not None
        return self.engine._resident


@contextmanager
def series_of(work_dir: Path, checkpoints: Sequence[Checkpoint]) -> Iterator[Series]:
    """Serve three checkpoints, and the first two again; the first two are cold."""
    series = Series(engine=VllmEngine(work_dir, SystemClock()), work_dir=work_dir)
    try:
        for index in (0, 1, 2, 0, 1):
            series.serve(checkpoints[index])
        yield series
    finally:
        series.engine.close()


@contextmanager
def plain_series(folder: Path) -> Iterator[Series]:
    """Serve checkpoints of the seeds 1, 0, 3, 1 and 0."""
    checkpoints = [checkpoint_record(write_checkpoint(folder / f"{n}", seed=n), step=n) for n in (1, 0, 3)]
    with series_of(folder / "work", checkpoints) as series:
        yield series


def ask_all(endpoint: Endpoint, prompts: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return text and log probabilities of greedy answers, asked one by one."""
    with openai.OpenAI(base_url=endpoint.base_url, api_key="none") as client:
        found = [
            client.completions.create(
                model=endpoint.model,
                prompt=prompt,
                max_tokens=16,
                temperature=0.0,
                logprobs=1,
                extra_body={"ignore_eos": True},
            ).choices[0]
            for prompt in prompts
        ]
    return [(choice.text, choice.logprobs.token_logprobs if choice.logprobs else ()) for choice in found]
