"""One real vLLM server for every integration test that needs one: a start takes 20 s and more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eval_jobs.execute.clock import SystemClock
from eval_jobs.serve.vllm import VllmEngine
from eval_jobs.types import Endpoint, ServeSpec
from tests.tiny_model import checkpoint_record, write_checkpoint

SERVED_MAX_MODEL_LEN = 256


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Endpoint]:
    """A vLLM server on the tiny model of seed 0 with a context of 256 tokens, which are characters here."""
    folder = tmp_path_factory.mktemp("served")
    checkpoint = checkpoint_record(write_checkpoint(folder / "checkpoint-100", seed=0))
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")

    def show(line: str) -> None:
        # Past the capturing of output, so that a person sees why nothing moves.
        if reporter is not None and reporter.isatty:
            reporter.rewrite(f"one vLLM for all integration tests: {line} ")

    engine = VllmEngine(folder / "work", SystemClock())
    try:
        with engine.serving(checkpoint, ServeSpec(max_model_len=SERVED_MAX_MODEL_LEN), progress=show) as endpoint:
            yield endpoint
    finally:
        engine.close()
