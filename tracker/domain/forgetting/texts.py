"""Prompts and answers for the lost samples that a ledger describes. Pure: the function that reads them is passed in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tracker.domain.forgetting.types import BenchmarkLedger, LostSample, LostTexts, RunLedger
from tracker.domain.scores.matrix import RIGHT
from tracker.domain.scores.summary import has_score

Read = Callable[[str, Collection[str]], EvalRecord | None]
"""Plan id and benchmarks -> record with the texts of at least these benchmarks."""

_Key = tuple[str, str, str]
"""Plan id, benchmark, sample id."""


def with_texts(ledger: RunLedger, read: Read) -> RunLedger:
    """Return the ledger with the texts of its described samples, from two checkpoints of each benchmark.

    Each plan is read once, and only the wanted samples of its record are kept.
    """
    wanted = set(_wanted(ledger))
    found: dict[_Key, _Said] = {}
    for plan_id, keys in groupby(sorted(wanted), key=itemgetter(0)):
        record = read(plan_id, {benchmark for _, benchmark, _ in keys})
        for key, said in () if record is None else _samples(record):
            if key in wanted:
                found.setdefault(key, said)  # the first repeat
    return replace(ledger, benchmarks=tuple(_with_texts(benchmark, found) for benchmark in ledger.benchmarks))


# --- private


@dataclass(frozen=True, kw_only=True)
class _Said:
    """One sample at one checkpoint."""

    sample: SampleScore
    answer: str | None
    """None if deleted to save space."""


def _wanted(ledger: RunLedger) -> Iterator[_Key]:
    for one in ledger.benchmarks:
        if one.window is not None:
            for sample in one.details:
                yield one.window.before_plan_id, one.benchmark, sample.sample_id
                yield one.window.after_plan_id, one.benchmark, sample.sample_id


def _samples(record: EvalRecord) -> Iterator[tuple[_Key, _Said]]:
    for outcome in record.outcomes:
        if isinstance(outcome, EvalResult):
            for sample in filter(has_score, outcome.samples):
                answer = sample.answer if outcome.has_texts else None
                yield (record.plan.id, outcome.benchmark, sample.sample_id), _Said(sample=sample, answer=answer)


def _with_texts(benchmark: BenchmarkLedger, found: dict[_Key, _Said]) -> BenchmarkLedger:
    return replace(benchmark, details=tuple(_sample_with_texts(s, benchmark, found) for s in benchmark.details))


def _sample_with_texts(sample: LostSample, benchmark: BenchmarkLedger, found: dict[_Key, _Said]) -> LostSample:
    window = benchmark.window
    if window is None:
        return sample
    before, after = (
        found.get((plan_id, benchmark.benchmark, sample.sample_id))
        for plan_id in (window.before_plan_id, window.after_plan_id)
    )
    if before is None or after is None:
        return sample
    return replace(
        sample,
        texts=LostTexts(
            prompt=after.sample.prompt,
            target=after.sample.target,
            answer_before=before.answer,
            right_before=_is_right(before.sample, benchmark),
            answer_after=after.answer,
            right_after=_is_right(after.sample, benchmark),
        ),
    )


def _is_right(sample: SampleScore, benchmark: BenchmarkLedger) -> bool:
    score = sample.score or 0.0
    return (score if benchmark.higher_is_better else 1.0 - score) > RIGHT
