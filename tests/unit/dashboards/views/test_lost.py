from __future__ import annotations

from dataclasses import replace

from dashboards.views.lost import losses_of, plans_with_texts
from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tests.records import RecordedRun, forgetting_run
from tests.reports import run_data
from tracker.domain.overview.run import overview

RUN = forgetting_run()
DATA = run_data(RUN)
VIEW = overview(RUN.reports, RUN.gaps)


def _changed(record: EvalRecord, benchmark: str, **fields: object) -> EvalRecord:
    """Return the record with fields of every sample of one benchmark replaced."""

    def changed(sample: SampleScore) -> SampleScore:
        return replace(sample, **fields)  # type: ignore[arg-type]

    outcomes = tuple(
        replace(o, samples=tuple(map(changed, o.samples)))
        if isinstance(o, EvalResult) and o.benchmark == benchmark
        else o
        for o in record.outcomes
    )
    return replace(record, outcomes=outcomes)


def test_each_forgotten_benchmark_shows_its_losses_and_the_improved_one_none() -> None:
    losses = losses_of(DATA, VIEW)
    assert [(x.benchmark, x.then_step, x.now_step, x.lost, x.gained, x.compared) for x in losses] == [
        ("facts", 600, 1000, 70, 0, 80),
        ("sums", 600, 1000, 53, 0, 80),
    ]


def test_counts_agree_with_the_comparison_that_the_verdict_rests_on() -> None:
    for loss in losses_of(DATA, VIEW):
        verdict = VIEW.at(1000, loss.benchmark)
        assert verdict is not None
        assert (loss.lost, loss.gained) == (verdict.comparisons[0].n_lost, verdict.comparisons[0].n_gained)


def test_an_example_has_both_answers_and_the_whole_life_of_the_sample() -> None:
    example = losses_of(DATA, VIEW)[0].examples[0]
    assert example.prompt.startswith("What colour is the ")
    assert example.answer_then == example.target
    assert example.answer_now == example.prompt.split()[-1].rstrip("?")[::-1]
    assert [m.step for m in example.moments] == list(range(100, 1001, 100))
    rights = {m.step: m.right for m in example.moments}
    assert (rights[600], rights[1000]) == (True, False)


def test_the_firmest_losses_come_first() -> None:
    def firmness(index: int) -> int:
        return sum(m.right is (m.step <= 600) for m in losses_of(DATA, VIEW)[0].examples[index].moments)

    assert firmness(0) >= firmness(1) >= firmness(2)


def test_only_the_texts_of_both_sides_are_asked_for() -> None:
    ids = {record.plan.id: record.plan.checkpoint.step for record in RUN.records}
    assert [ids[plan_id] for plan_id in plans_with_texts(DATA, VIEW)] == [600, 1000]


def test_without_texts_the_counts_remain() -> None:
    losses = losses_of(replace(DATA, texts={}), VIEW)
    assert [(x.lost, x.examples) for x in losses] == [(70, ()), (53, ())]


def test_a_sample_without_a_score_at_a_step_is_neither_right_nor_wrong_there() -> None:
    shown = losses_of(DATA, VIEW)[0].examples[0].prompt
    first = RUN.records[0].outcomes[0]
    assert isinstance(first, EvalResult)
    samples = tuple(
        replace(s, score=None, status=SampleStatus.ERROR) if s.prompt == shown else s for s in first.samples
    )
    record = replace(RUN.records[0], outcomes=(replace(first, samples=samples), *RUN.records[0].outcomes[1:]))
    data = run_data(replace(RUN, records=(record, *RUN.records[1:])))
    example = next(x for x in losses_of(data, VIEW)[0].examples if x.prompt == shown)
    assert {m.step: m.right for m in example.moments}[100] is None


def test_a_very_long_text_is_shortened() -> None:
    data = replace(DATA, texts={k: _changed(r, "facts", prompt="x" * 100_000) for k, r in DATA.texts.items()})
    prompt = losses_of(data, VIEW)[0].examples[0].prompt
    assert len(prompt) < 800
    assert "99300 characters left out" in prompt


def test_control_characters_are_removed() -> None:
    data = replace(DATA, texts={k: _changed(r, "facts", answer="a\x1b[2Jb\x00") for k, r in DATA.texts.items()})
    assert losses_of(data, VIEW)[0].examples[0].answer_now == "a\ufffd[2Jb\ufffd"


def test_sides_that_were_measured_unlike_are_not_compared() -> None:
    newest = RUN.records[-1]
    outcomes = tuple(replace(o, fingerprint="other") if o.benchmark == "facts" else o for o in newest.outcomes)
    run = replace(RUN, records=(*RUN.records[:-1], replace(newest, outcomes=outcomes)))
    assert [x.benchmark for x in losses_of(run_data(run), VIEW)] == ["sums"]


def test_a_side_whose_record_is_gone_is_left_out() -> None:
    assert losses_of(run_data(replace(RUN, records=RUN.records[-1:])), VIEW) == ()


def test_where_lower_is_better_a_high_score_is_wrong() -> None:
    def flipped(record: EvalRecord) -> EvalRecord:
        def turned(sample: SampleScore) -> SampleScore:
            return replace(sample, score=None if sample.score is None else 1 - sample.score)

        return replace(
            record,
            outcomes=tuple(
                replace(o, higher_is_better=False, samples=tuple(map(turned, o.samples)))
                if isinstance(o, EvalResult)
                else o
                for o in record.outcomes
            ),
        )

    run = RecordedRun(run_id=RUN.run_id, records=tuple(map(flipped, RUN.records)), reports=RUN.reports)
    losses = losses_of(run_data(run), VIEW)
    assert [(x.benchmark, x.lost, x.gained) for x in losses] == [("facts", 70, 0), ("sums", 53, 0)]
    right = {m.step: m.right for m in losses[0].examples[0].moments}
    assert (right[600], right[1000]) == (True, False)
