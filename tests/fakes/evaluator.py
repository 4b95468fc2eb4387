"""An evaluator without EvalScope, a server or a process: it asks a function."""

from collections.abc import Callable

from eval_jobs.errors import TrackerError
from eval_jobs.evaluate.data.files import check_benchmark, read_items
from eval_jobs.evaluate.data.known_benchmarks import EXACT
from eval_jobs.evaluate.data.rows import Item
from eval_jobs.evaluate.evalscope.child.scoring import chosen_letter, exact_score
from eval_jobs.identity import benchmark_fingerprint, numbered, sample_key
from eval_jobs.ports import ShowProgress
from eval_jobs.records.progress import Progress, Stage
from eval_jobs.screening import Question, screen_of
from eval_jobs.types import Benchmark, Endpoint, EvalResult, SampleScore, SampleStatus, ScreenPart, Suite


class FakeEvaluator:
    """`eval_jobs.ports.Evaluator` over `exact` and `choice` files.

    `answer` gets the question. A ValueError from it makes that sample an error; a TrackerError ends its benchmark.
    """

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer
        self.closed = 0
        self.prepared: list[tuple[Suite, str]] = []
        self.endpoints: list[Endpoint] = []
        self._answers: dict[tuple[str, str, str, int], str] = {}

    def evaluate(
        self, suite: Suite, endpoint: Endpoint, *, plan_id: str, progress: ShowProgress
    ) -> tuple[EvalResult | TrackerError, ...]:
        """Ask one question after the other."""
        self.endpoints.append(endpoint)
        outcomes: list[EvalResult | TrackerError] = []
        for benchmark in suite.benchmarks:
            try:
                outcomes.append(self._evaluate_one(benchmark, suite, plan_id=plan_id, progress=progress))
            except TrackerError as error:
                outcomes.append(error)
        return tuple(outcomes)

    def _evaluate_one(self, benchmark: Benchmark, suite: Suite, *, plan_id: str, progress: ShowProgress) -> EvalResult:
        check_benchmark(benchmark)
        everything = _planned(benchmark)
        items = _of_part(everything, suite.part)
        ids = numbered(_key(item) for item in items)
        fingerprint = benchmark_fingerprint(benchmark, suite)
        samples = []
        for number, (item, sample_id) in enumerate(zip(items, ids, strict=True), start=1):
            for repeat in range(benchmark.repeats):
                key = (plan_id, fingerprint, sample_id, repeat)
                samples.append(self._sample(key, item, benchmark))
            names, total = (benchmark.name,), len(items)
            progress(Progress(stage=Stage.EVALUATING, benchmarks=names, done=number, total=total))
        return EvalResult(
            benchmark=benchmark.name,
            fingerprint=fingerprint,
            metric="accuracy",
            samples=tuple(samples),
            duration_s=0.0,
            higher_is_better=benchmark.higher_is_better,
            left_out=len(everything) - len(items),
        )

    def prepare(self, suite: Suite, *, api_key_env: str) -> None:
        """Note it: nothing takes long here."""
        self.prepared.append((suite, api_key_env))

    def kept(self) -> tuple[str, ...]:
        """Return the plans with answers."""
        return tuple(sorted({key[0] for key in self._answers}))

    def forget(self, plan_id: str) -> None:
        """Drop the answers of a plan."""
        self._answers = {key: answer for key, answer in self._answers.items() if key[0] != plan_id}

    def close(self) -> None:
        """Count."""
        self.closed += 1

    def _sample(self, key: tuple[str, str, str, int], item: Item, benchmark: Benchmark) -> SampleScore:
        score, status, answer, detail = None, SampleStatus.ERROR, "", ""
        try:
            answer = self._answers[key] = self._answers.get(key) or self.answer(item.question)
            status = SampleStatus.SCORED
            score = _score(benchmark, item, answer)
        except ValueError as error:
            detail = str(error)
        return SampleScore(
            sample_id=key[2],
            subset=item.subset,
            repeat=key[3],
            score=score,
            status=status,
            cluster_id=item.cluster,
            prompt=item.question,
            target=" | ".join(item.targets),
            answer=answer,
            detail=detail,
        )


def _planned(benchmark: Benchmark) -> list[Item]:
    by_subset: dict[str, list[Item]] = {}
    for item in read_items(benchmark):
        by_subset.setdefault(item.subset, []).append(item)
    chosen = benchmark.subsets or sorted(by_subset)
    return [item for subset in chosen for item in by_subset[subset][: benchmark.limit]]


def _of_part(items: list[Item], part: ScreenPart | None) -> list[Item]:
    if part is None:
        return items
    chosen = screen_of((Question(key=_key(i), subset=i.subset, cluster=i.cluster) for i in items), part.screen)
    return [item for item in items if (_key(item) in chosen) is not part.is_rest]


def _key(item: Item) -> str:
    return sample_key(item.subset, [("user", item.question)], _target(item))


def _target(item: Item) -> str | list[str]:
    return item.targets[0] if len(item.targets) == 1 else list(item.targets)


def _score(benchmark: Benchmark, item: Item, answer: str) -> float:
    if benchmark.adapter == EXACT:
        return exact_score(answer, item.targets)
    return float(chosen_letter(answer, len(item.choices)) == item.targets[0])
