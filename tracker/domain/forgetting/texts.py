"""Prompts and answers for the lost samples that a ledger describes. Pure: the function that reads them is passed in."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from eval_jobs.types import EvalRecord, SampleScore
from tracker.domain.forgetting.types import BenchmarkLedger, LostSample, LostTexts, RunLedger
from tracker.domain.scores.flips import RIGHT
from tracker.domain.scores.summary import Answered, answers_of

Read = Callable[[str, Collection[str]], EvalRecord | None]
"""Plan id and benchmarks -> record with the texts of at least these benchmarks."""

_Key = tuple[str, str, str]
"""Plan id, benchmark, sample id."""


def with_texts(ledger: RunLedger, read: Read) -> RunLedger:
    """Return the ledger with the texts of its described samples, from two checkpoints of each benchmark.

    Each plan is read once, and only the wanted samples of its record are kept.
    """
    wanted = set(_wanted(ledger))
    found: dict[_Key, Answered] = {}
    for plan_id, keys in groupby(sorted(wanted), key=itemgetter(0)):
        record = read(plan_id, {benchmark for _, benchmark, _ in keys})
        for result in record.results if record else ():
            for sample_id, answered in answers_of(result).items():
                key = plan_id, result.benchmark, sample_id
                if key in wanted:
                    found[key] = answered
    benchmarks = []
    for one in ledger.benchmarks:
        benchmarks.append(replace(one, details=tuple(_sample_with_texts(s, one, found) for s in one.details)))
    return replace(ledger, benchmarks=tuple(benchmarks))


def texts_of(before: Answered, after: Answered, *, was_right: bool, is_right: bool) -> LostTexts:
    """Return the texts of one sample with its answers at two checkpoints."""
    return LostTexts(
        prompt=after.sample.prompt,
        target=after.sample.target,
        answer_before=before.answer,
        right_before=was_right,
        answer_after=after.answer,
        right_after=is_right,
    )


def _wanted(ledger: RunLedger) -> Iterator[_Key]:
    for one in ledger.benchmarks:
        for sample in one.details:
            yield from _keys(one, sample)


def _keys(benchmark: BenchmarkLedger, sample: LostSample) -> Iterator[_Key]:
    """Yield the key of the answer before and of the one after, if there are two groups of checkpoints."""
    if benchmark.window is not None:
        for plan_id in (benchmark.window.before_plan_id, benchmark.window.after_plan_id):
            yield plan_id, benchmark.benchmark, sample.sample_id


def _sample_with_texts(sample: LostSample, benchmark: BenchmarkLedger, found: dict[_Key, Answered]) -> LostSample:
    answers = [found[key] for key in _keys(benchmark, sample) if key in found]
    if len(answers) < 2:
        return sample
    before, after = answers
    was_right, is_right = (_is_right(one.sample, benchmark) for one in answers)
    return replace(sample, texts=texts_of(before, after, was_right=was_right, is_right=is_right))


def _is_right(sample: SampleScore, benchmark: BenchmarkLedger) -> bool:
    score = sample.score or 0.0
    return (score if benchmark.higher_is_better else 1.0 - score) > RIGHT
