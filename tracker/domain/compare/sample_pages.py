"""Pages with a few samples of two checkpoints next to each other: choice of the samples, and their texts. Pure.

Each benchmark has two pages. One holds a small fixed set, chosen by the content of the questions alone. It is the same
for every two checkpoints of a run, so pages of different pairs can be compared, and its shares are unbiased. The other
holds the samples that changed between the two checkpoints, largest losses first; its shares have no meaning.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from eval_jobs.identity import content_hash, numbered
from eval_jobs.screening import Question, screen_of
from eval_jobs.types import Checkpoint, EvalRecord, EvalResult, SampleScore, SampleStatus, Screen
from tracker.domain.compare.view import on_common_questions
from tracker.domain.records.display import clean, one_line, shortened
from tracker.domain.scores.pairing import measured_alike, pair
from tracker.domain.scores.summary import has_score, result_of, sample_means

FIXED_SAMPLES = 30
CHANGED_SAMPLES = 20
"""In each direction."""
MAX_BENCHMARKS = 5
"""Benchmarks with pages, those that lost the largest share of samples; each takes MLflow five seconds or more."""
TITLE_CHARS = 900
"""MLflow cuts the displayed question at 1000 characters, and treats equal titles as the same question."""
TEXT_CHARS = 20_000


class SampleFilter(StrEnum):
    """Which samples a page holds."""

    FIXED = "fixed"
    CHANGED = "changed"


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """One sample at one checkpoint."""

    sample_id: str
    title: str
    """Its subset, if there are several, and the question; unique on its page."""
    subset: str
    prompt: str
    target: str
    answer: str | None
    """None if deleted to save space."""
    score: float | None
    """Mean of the repeats that have a score; None if none has one, which does not mean a wrong answer."""
    status: SampleStatus
    detail: str
    """Why there is no score."""


@dataclass(frozen=True, kw_only=True)
class SampleSheet:
    """One side of a page: the samples of one benchmark at one checkpoint."""

    key: str
    """Content hash of the checkpoints, the benchmark's fingerprint, and the samples with their scores."""
    name: str
    """`run@step benchmark`; for changed samples also the checkpoint compared with."""
    checkpoint: Checkpoint
    benchmark: str
    fingerprint: str
    choice: SampleFilter
    is_right_or_wrong: bool
    """Every score of the benchmark is 0 or 1, without repeats, and 1 is right; else a score is a number."""
    rows: tuple[SampleRow, ...]


@dataclass(frozen=True, kw_only=True)
class SamplePage:
    """Two sheets of the same samples in the same order."""

    before: SampleSheet
    after: SampleSheet
    chosen_from: int
    """Number of questions, or of changed ones, that the samples were chosen from."""


@dataclass(frozen=True, kw_only=True)
class ChosenPages:
    """Result of `sample_pages`."""

    pages: tuple[SamplePage, ...]
    """The benchmark that lost the most first; for each the changed samples, if any, then the fixed set."""
    left_out: tuple[str, ...]
    """Benchmarks beyond the limit."""
    without_answers: tuple[int, ...]
    """Steps whose answers were deleted to save space."""


def sample_pages(before: EvalRecord, after: EvalRecord, benchmarks: Collection[str]) -> ChosenPages:
    """Return the pages of those `benchmarks` for which both records have comparable results with samples."""
    tried = (_pair_of(name, before, after) for name in benchmarks)
    pairs = [pair for pair in tried if pair is not None]
    pairs.sort(key=lambda pair: (pair.share(pair.lost), pair.share(pair.gained)), reverse=True)
    shown = pairs[:MAX_BENCHMARKS]
    forgotten: set[int] = set()
    for one in shown:
        for record, result in ((before, one.before), (after, one.after)):
            if not result.has_texts:
                forgotten.add(record.plan.checkpoint.step)
    return ChosenPages(
        pages=tuple(chain.from_iterable(map(_pages, shown))),
        left_out=tuple(pair.after.benchmark for pair in pairs[MAX_BENCHMARKS:]),
        without_answers=tuple(sorted(forgotten)),
    )


@dataclass(frozen=True, kw_only=True)
class _Pair:
    checkpoints: tuple[Checkpoint, Checkpoint]
    before: EvalResult
    after: EvalResult
    lost: tuple[str, ...]
    """Ids of samples, the largest change first."""
    gained: tuple[str, ...]

    def share(self, changed: Sequence[str]) -> float:
        return len(changed) / max(1, len({sample.sample_id for sample in self.after.samples}))


def _pair_of(name: str, before: EvalRecord, after: EvalRecord) -> _Pair | None:
    left, right = _with_samples(before, name), _with_samples(after, name)
    if left is None or right is None or not measured_alike(after, before, name):
        return None
    left, right = on_common_questions(left, right)
    pairing = pair(right, left)
    changes = [float(change) for change in pairing.candidate - pairing.baseline]
    order = sorted(zip(pairing.sample_ids, changes, strict=True), key=lambda one: -abs(one[1]))
    return _Pair(
        checkpoints=(before.plan.checkpoint, after.plan.checkpoint),
        before=left,
        after=right,
        lost=tuple(key for key, change in order if change < 0),
        gained=tuple(key for key, change in order if change > 0),
    )


def _with_samples(record: EvalRecord, name: str) -> EvalResult | None:
    result = result_of(record, name)
    if result is not None and result.samples:
        return result
    return None


def _pages(pair: _Pair) -> Iterable[SamplePage]:
    changed = (*pair.lost[:CHANGED_SAMPLES], *pair.gained[:CHANGED_SAMPLES])
    if changed:
        yield _page(pair, SampleFilter.CHANGED, changed, len(pair.lost) + len(pair.gained))
    # Only questions on both sides: if one checkpoint was evaluated on a part, the other shows the same questions.
    both = {s.sample_id for s in pair.before.samples} & {s.sample_id for s in pair.after.samples}
    questions = [Question(key=s.sample_id, subset=s.subset, cluster=s.cluster_id) for s in pair.after.samples]
    fixed = screen_of((q for q in questions if q.key in both), Screen(samples=FIXED_SAMPLES))
    in_order = dict.fromkeys(s.sample_id for s in pair.after.samples if s.sample_id in fixed)
    yield _page(pair, SampleFilter.FIXED, tuple(in_order), len(both))


def _page(pair: _Pair, choice: SampleFilter, samples: Sequence[str], chosen_from: int) -> SamplePage:
    first, second = pair.checkpoints
    scores = {s.score for s in (*pair.before.samples, *pair.after.samples) if has_score(s)}
    has_repeats = any(sample.repeat for sample in pair.after.samples)
    is_right_or_wrong = pair.after.higher_is_better and scores <= {0.0, 1.0} and not has_repeats
    titles = _titles(pair.after, samples)
    before, after = (
        _sheet(checkpoint, other, result, choice, _rows(result, titles), is_right_or_wrong=is_right_or_wrong)
        for checkpoint, other, result in ((first, second, pair.before), (second, first, pair.after))
    )
    return SamplePage(before=before, after=after, chosen_from=chosen_from)


def _sheet(
    checkpoint: Checkpoint,
    other: Checkpoint,
    result: EvalResult,
    choice: SampleFilter,
    rows: tuple[SampleRow, ...],
    *,
    is_right_or_wrong: bool,
) -> SampleSheet:
    against = other if choice is SampleFilter.CHANGED else None
    # Without the texts: a page written before they were deleted is the more complete one and must be kept.
    content = [(row.sample_id, row.score, row.status) for row in rows]
    key = [_identity(checkpoint), against and _identity(against), result.fingerprint, is_right_or_wrong, content]
    return SampleSheet(
        key=content_hash(key),
        name=_name(checkpoint, result.benchmark, against),
        checkpoint=checkpoint,
        benchmark=result.benchmark,
        fingerprint=result.fingerprint,
        choice=choice,
        is_right_or_wrong=is_right_or_wrong,
        rows=rows,
    )


def _identity(checkpoint: Checkpoint) -> tuple[str, int, str]:
    return (checkpoint.run_id, checkpoint.step, checkpoint.digest)


def _name(checkpoint: Checkpoint, benchmark: str, against: Checkpoint | None) -> str:
    name = f"{one_line(checkpoint.run_id)}@{checkpoint.step} {one_line(benchmark)}"
    if against is None:
        return name
    run = "" if against.run_id == checkpoint.run_id else one_line(against.run_id)
    digest = f":{against.digest[:8]}" if (run, against.step) == ("", checkpoint.step) else ""
    return f"{name}, changed vs. {run}@{against.step}{digest}"


def _titles(result: EvalResult, samples: Sequence[str]) -> dict[str, str]:
    """Return the title of each sample, equal ones numbered: MLflow pairs the two sides by title."""
    by_id = {s.sample_id: s for s in reversed(result.samples)}
    has_subsets = len({s.subset for s in result.samples}) > 1
    titles = (
        shortened(f"{one_line(by_id[key].subset)} · {one_line(by_id[key].prompt)}", TITLE_CHARS)
        if has_subsets
        else shortened(one_line(by_id[key].prompt), TITLE_CHARS)
        for key in samples
    )
    return dict(zip(samples, numbered(titles), strict=True))


def _rows(result: EvalResult, titles: dict[str, str]) -> tuple[SampleRow, ...]:
    shown: dict[str, SampleScore] = {}
    for sample in result.samples:
        known = shown.get(sample.sample_id)
        if sample.sample_id in titles and (known is None or (not has_score(known) and has_score(sample))):
            shown[sample.sample_id] = sample
    means = sample_means(result)
    return tuple(
        _row(shown[key], title, means[key].score if key in means else None, has_texts=result.has_texts)
        for key, title in titles.items()
    )


def _row(sample: SampleScore, title: str, score: float | None, *, has_texts: bool) -> SampleRow:
    return SampleRow(
        sample_id=sample.sample_id,
        title=title,
        subset=one_line(sample.subset),
        prompt=_text(sample.prompt),
        target=_text(sample.target),
        answer=_text(sample.answer) if has_texts else None,
        score=score,
        status=sample.status,
        detail=_text(sample.detail),
    )


def _text(text: str) -> str:
    return shortened(clean(text), TEXT_CHARS)
