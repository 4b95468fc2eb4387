"""An engine that dies on the fixed prompts or while it serves, on the stand-in for vLLM."""

from pathlib import Path

import pytest

from eval_jobs.errors import ServeError, ServerDied
from eval_jobs.serve.process import control
from eval_jobs.types import Checkpoint
from tests.contract.engine_rules import nothing_to_show
from tests.warm_engines import Bench, bench, work_dir

__all__ = ["bench", "work_dir"]


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("core-dies", "E-SERVE-DIED", "the engine died (RuntimeError: Unsupported CPU attention configuration: head_"),
        ("core-killed", "E-SERVE-KILLED", "the engine died (a process was killed) while serving"),
        ("refuses", "E-SERVE-CANARY", "HTTP 500"),
    ],
)
def test_what_answers_no_fixed_prompt_is_not_served_and_the_log_is_named(
    bench: Bench, work_dir: Path, mode: str, error: str, words: str
) -> None:
    with pytest.raises(ServeError) as caught:
        bench.serve(bench.full(1), args=("--stand-in", mode))
    (engine_log,) = work_dir.glob("engines/*.log")
    assert (caught.value.code, bench.endpoints) == (error, [])
    assert words in caught.value.message
    assert str(engine_log) in caught.value.hint


@pytest.mark.parametrize("mode", ["core-dies", "core-killed"])
def test_an_engine_that_dies_while_it_serves_is_reported_at_the_end_unless_there_was_another_error(
    bench: Bench, mode: str
) -> None:
    def ask(checkpoint: Checkpoint, error: Exception | None) -> None:
        with bench.engine.serving(checkpoint, bench.spec, progress=nothing_to_show) as endpoint:
            bench.endpoints.append(endpoint)
            bench.set_mode(mode)
            body = {"model": endpoint.model, "prompt": [0], "max_tokens": 1}
            control.post_to_engine(int(endpoint.base_url.split(":")[-1][:-3]), "/v1/completions", body, timeout_s=5.0)
            if error is not None:
                raise error

    with pytest.raises(ServerDied, match="RuntimeError: Unsupp" if mode == "core-dies" else "a process was killed"):
        ask(bench.full(1), None)
    with pytest.raises(LookupError, match="ours"):
        ask(bench.full(1), LookupError("ours"))
    assert bench.serve(bench.full(2)).load_method == "cold"
