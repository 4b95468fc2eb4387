"""Which samples of two checkpoints are shown side by side, and what is shown of each."""

from dataclasses import replace

from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tests.records import forgetting_run, wide_run
from tracker.domain.compare.sample_pages import (
    CHANGED_SAMPLES,
    FIXED_SAMPLES,
    MAX_BENCHMARKS,
    SampleFilter,
    SamplePage,
    sample_pages,
)

RUN = forgetting_run(samples=80)
NAMES = ("facts", "sums", "reversal")


def at(step: int) -> EvalRecord:
    return next(record for record in RUN.records if record.plan.checkpoint.step == step)


def page_of(before: EvalRecord, after: EvalRecord, name: str, choice: SampleFilter) -> SamplePage:
    pages = sample_pages(before, after, NAMES).pages
    (page,) = (page for page in pages if (page.after.benchmark, page.after.choice) == (name, choice))
    return page


def with_samples(record: EvalRecord, name: str, *samples: SampleScore) -> EvalRecord:
    outcomes = (
        replace(o, samples=samples) if isinstance(o, EvalResult) and o.benchmark == name else o for o in record.outcomes
    )
    return replace(record, outcomes=tuple(outcomes))


def samples_of(record: EvalRecord, name: str) -> tuple[SampleScore, ...]:
    return next(o.samples for o in record.outcomes if isinstance(o, EvalResult) and o.benchmark == name)


def test_the_fixed_set_is_the_same_for_every_two_checkpoints_and_in_whatever_order_the_data_comes() -> None:
    first = page_of(at(200), at(500), "facts", SampleFilter.FIXED)
    shuffled = with_samples(at(1000), "facts", *samples_of(at(1000), "facts")[::-1])
    second = page_of(at(600), shuffled, "facts", SampleFilter.FIXED)
    assert len(first.after.rows) == FIXED_SAMPLES
    assert {row.sample_id for row in first.after.rows} == {row.sample_id for row in second.before.rows}
    assert first.chosen_from == 80


def test_a_checkpoint_has_one_fixed_sheet_whatever_it_is_held_against() -> None:
    assert (
        page_of(at(200), at(600), "facts", SampleFilter.FIXED).after
        == page_of(at(600), at(900), "facts", SampleFilter.FIXED).before
    )


def test_what_changed_comes_first_and_of_it_what_was_lost() -> None:
    page = page_of(at(600), at(900), "facts", SampleFilter.CHANGED)
    before, after = ([row.score for row in sheet.rows] for sheet in (page.before, page.after))
    lost = sum(1 for old, new in zip(before, after, strict=True) if (old, new) == (1.0, 0.0))
    assert lost == CHANGED_SAMPLES < page.chosen_from
    assert (before[:lost], after[:lost]) == ([1.0] * lost, [0.0] * lost)
    assert all((old, new) == (0.0, 1.0) for old, new in zip(before[lost:], after[lost:], strict=True))
    assert page.after.name == "tiny-forgetting@900 facts, changed vs. @600"


def test_where_nothing_changed_there_is_the_fixed_set_alone() -> None:
    pages = sample_pages(at(600), replace(at(600), plan=at(700).plan), NAMES).pages
    assert {page.after.choice for page in pages} == {SampleFilter.FIXED}


def test_the_benchmark_that_lost_the_most_comes_first_and_those_beyond_the_limit_are_named() -> None:
    run = wide_run(checkpoints=20, benchmarks=14, samples=20)
    before, after = run.records[9], run.records[-1]
    names = [outcome.benchmark for outcome in after.outcomes]
    chosen = sample_pages(before, after, names)
    shown = list(dict.fromkeys(page.after.benchmark for page in chosen.pages))
    assert shown[0] in {"benchmark_03", "benchmark_10"}
    assert len(shown) == MAX_BENCHMARKS
    assert {*shown, *chosen.left_out} == set(names)


def test_a_sample_without_a_score_has_none_and_says_why() -> None:
    samples = samples_of(at(600), "facts")
    broken = [
        replace(s, score=None, status=SampleStatus.ERROR, answer="", detail="the stream was cut") for s in samples
    ]
    rows = page_of(with_samples(at(500), "facts", *samples), at(600), "facts", SampleFilter.FIXED).after.rows
    record = with_samples(
        at(600), "facts", *(b if i % 3 else s for i, (s, b) in enumerate(zip(samples, broken, strict=True)))
    )
    partly = page_of(at(500), record, "facts", SampleFilter.FIXED).after.rows
    assert all(row.score is not None for row in rows)
    without = [row for row in partly if row.status is SampleStatus.ERROR]
    assert without
    assert {(row.score, row.detail) for row in without} == {(None, "the stream was cut")}


def test_answers_that_were_deleted_are_none_and_the_step_is_named() -> None:
    outcomes = tuple(replace(o, has_texts=False) if isinstance(o, EvalResult) else o for o in at(600).outcomes)
    chosen = sample_pages(replace(at(600), outcomes=outcomes), at(900), NAMES)
    assert chosen.without_answers == (600,)
    assert {row.answer for page in chosen.pages for row in page.before.rows} == {None}
    kept = sample_pages(at(600), at(900), NAMES)
    # The page that was written while they were there is found again.
    assert [page.before.key for page in chosen.pages] == [page.before.key for page in kept.pages]


def test_weights_saved_again_at_the_step_have_pages_of_their_own() -> None:
    again = replace(at(600).plan.checkpoint, digest="f" * 64)
    record = replace(at(600), plan=replace(at(600).plan, checkpoint=again))
    one, other = (page_of(r, at(900), "facts", SampleFilter.FIXED).before for r in (at(600), record))
    assert one.key != other.key


def test_scores_between_right_and_wrong_are_numbers() -> None:
    samples = samples_of(at(900), "facts")
    half = with_samples(at(900), "facts", replace(samples[0], score=0.5), *samples[1:])
    assert not page_of(at(600), half, "facts", SampleFilter.FIXED).before.is_right_or_wrong
    assert page_of(at(600), at(900), "facts", SampleFilter.FIXED).before.is_right_or_wrong


def test_equal_questions_are_told_apart_and_hostile_text_is_harmless() -> None:
    one, two, *rest = samples_of(at(900), "facts")
    same = [replace(s, prompt="\x1b[31mWhat\n\x00is it?", answer="\ud800") for s in (one, two)]
    record = with_samples(at(900), "facts", *same, *rest)
    names = [row.title for row in page_of(record, record, "facts", SampleFilter.FIXED).after.rows]
    assert len(set(names)) == len(names)
    texts = [
        text
        for row in page_of(at(600), record, "facts", SampleFilter.CHANGED).after.rows
        for text in (row.title, row.prompt, row.answer or "")
    ]
    assert not any(char in text for text in texts for char in "\x1b\x00\ud800")
