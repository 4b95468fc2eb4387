"""lm-evaluation-harness asks the real vLLM for the likelihoods of prompts, which no stand-in has."""

from pathlib import Path

import httpx
import pytest

from eval_jobs.evaluate.lm_eval.evaluator import LmEvalEvaluator
from eval_jobs.types import Endpoint, SampleStatus
from tests.evaluating import evaluate_one, suite_of
from tests.harness_tasks import CHOOSE, task

pytestmark = pytest.mark.vllm

ROWS: list[dict[str, object]] = [
    {"question": f"{n} plus 1 is", "choices": [str(n), str(n + 1), "many"], "answer": str(n + 1)} for n in range(6)
]


def likelihood(served: Endpoint, context: str, choice: str) -> float:
    """Return the log-likelihood of a choice after a context; a token of this model is a character."""
    body = {"model": served.model, "prompt": f"{context} {choice}", "max_tokens": 1, "echo": True, "logprobs": 1}
    reply = httpx.post(f"{served.base_url}/completions", json=body | {"temperature": 0}, timeout=300).json()
    found = reply["choices"][0]["logprobs"]["token_logprobs"]
    return float(sum(found[-2 - len(choice) : -1]))


def test_choices_are_scored_by_the_likelihoods_that_the_engine_itself_gives(served: Endpoint, tmp_path: Path) -> None:
    evaluator = LmEvalEvaluator(tmp_path / "work", log_name="harness.log")
    benchmark = task(tmp_path / "tasks", ROWS, name="local_choice", form=CHOOSE)
    result = evaluate_one(evaluator, suite_of(benchmark), served, plan_id="p")
    assert result.metric == "acc,none"
    assert [s.status for s in result.samples] == [SampleStatus.SCORED] * len(ROWS)
    for row, sample in zip(ROWS, result.samples, strict=True):
        choices = row["choices"]
        assert isinstance(choices, list)
        likely = [likelihood(served, str(row["question"]), choice) for choice in choices]
        chosen = choices[likely.index(max(likely))]
        assert sample.score == float(chosen == row["answer"])
        assert sample.answer.strip() == chosen
    evaluator.close()
