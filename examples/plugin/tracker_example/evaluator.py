"""An evaluator: one question a line of a JSONL file, right when the first line of the answer is the expected one.

[[benchmark]]
benchmark = "capitals"
evaluator = "first-line"
data = "capitals.jsonl"
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx

from eval_jobs.errors import BadData, EndpointFailed, TrackerError
from eval_jobs.evaluate.common.answer_check import CUT, check_answer
from eval_jobs.identity import benchmark_fingerprint, numbered, sample_key
from eval_jobs.ports import Clock, ShowProgress
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.types import Benchmark, Endpoint, EvalResult, SampleScore, SampleStatus, Suite


class FirstLine:
    """`eval_jobs.ports.Evaluator` over chat completions. What was answered is kept, one file for each question."""

    def __init__(self, work_dir: Path, clock: Clock) -> None:  # noqa: ARG002 - part of how it is called
        """Describe where answers are kept."""
        self._folder = work_dir

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Nothing takes long."""

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Ask one benchmark after the other."""
        return tuple(self._outcome(b, suite, endpoint, self._folder / plan_id, progress) for b in suite.benchmarks)

    def kept(self) -> tuple[str, ...]:
        """Return the plans with answers."""
        return tuple(path.name for path in self._folder.glob("*"))

    def forget(self, plan_id: str) -> None:
        """Delete the answers of a plan."""
        folder = next((path for path in self._folder.glob("*") if path.name == plan_id), None)
        for path in sorted(folder.rglob("*"), reverse=True) if folder else ():
            path.rmdir() if path.is_dir() else path.unlink()
        if folder:
            folder.rmdir()

    def close(self) -> None:
        """Nothing is open."""

    def _outcome(
        self, benchmark: Benchmark, suite: Suite, endpoint: Endpoint, folder: Path, progress: ShowProgress
    ) -> EvalResult | TrackerError:
        fingerprint = benchmark_fingerprint(benchmark, suite)
        try:
            if benchmark.program:
                benchmark.program.check_options()
            rows = [json.loads(line) for line in Path(benchmark.data or "").read_text("utf-8").splitlines()]
            asked = [(row["question"], row["answer"]) for row in rows][: benchmark.limit]
        except TrackerError as error:
            return error
        except (OSError, ValueError, KeyError, TypeError) as error:
            return BadData(f"{benchmark.data}: {type(error).__name__}: {error}", hint='lines of {"question", "answer"}')
        ids = numbered(sample_key("default", [("user", question)], answer) for question, answer in asked)
        client = _Client(endpoint, suite, benchmark, folder / fingerprint)
        try:
            with closing(client), ThreadPoolExecutor(suite.concurrency) as pool:
                samples = tuple(pool.map(client.sample, ids, *zip(*asked, strict=True)))
        except httpx.TransportError as error:
            return EndpointFailed(f"{endpoint.base_url} does not answer: {error!r}", hint="see its log")
        progress(Progress(stage=Stage.EVALUATING, benchmarks=(benchmark.name,), done=len(samples), total=len(samples)))
        up = benchmark.higher_is_better
        return EvalResult(
            benchmark=benchmark.name, fingerprint=fingerprint, metric="accuracy", samples=samples, duration_s=0.0,
            higher_is_better=up,
        )  # fmt: skip


class _Client:
    def __init__(self, endpoint: Endpoint, suite: Suite, benchmark: Benchmark, folder: Path) -> None:
        key = os.environ.get(endpoint.api_key_env, "none") if endpoint.api_key_env else "none"
        self._http = httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=suite.request_timeout_s)
        self._url, self._folder = f"{endpoint.base_url}/chat/completions", folder
        sent = suite.generation
        self._body = {
            "model": endpoint.model,
            "max_tokens": benchmark.max_tokens or sent.max_tokens,
            "temperature": sent.temperature,
            "top_p": sent.top_p,
            "seed": sent.seed,
        }
        folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def sample(self, sample_id: str, question: str, target: str) -> SampleScore:
        """Ask, or take the answer that is kept. A refusal is an error, never a wrong answer."""
        kept = self._folder / f"{sample_id}.json"
        said = json.loads(kept.read_text()) if kept.exists() else self._asked(question)
        status, answer, score = SampleStatus(said["status"]), said["answer"], None
        if status is not SampleStatus.ERROR:
            kept.with_suffix(".draft").write_text(json.dumps(said))
            kept.with_suffix(".draft").replace(kept)
            score = float(answer.strip().split("\n")[0].strip() == str(target))
        return SampleScore(
            sample_id=sample_id, subset="default", score=score, status=status, prompt=question, target=str(target),
            answer=answer if score is not None else "", detail=answer if score is None else "",
        )  # fmt: skip

    def _asked(self, question: str) -> dict[str, str]:
        reply = self._http.post(self._url, json=self._body | {"messages": [{"role": "user", "content": question}]})
        if reply.status_code != httpx.codes.OK:
            return {"status": "error", "answer": f"HTTP {reply.status_code}: {reply.text[:200]}"}
        try:
            check_answer(said := reply.json())
        except ValueError as error:  # no JSON, or an answer that was cut off with its server
            return {"status": "error", "answer": str(error)}
        choice = said["choices"][0]
        status = "truncated" if choice["finish_reason"] in CUT else "scored"
        return {"status": status, "answer": choice["message"]["content"] or ""}
