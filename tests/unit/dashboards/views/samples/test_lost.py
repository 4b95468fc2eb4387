from dataclasses import replace

from dashboards.data.run import RunData
from dashboards.views.samples.lost import changed_pairs, losses_of, texts_wanted
from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tests.records import RecordedRun, forgetting_run
from tests.reports import run_data
from tracker.domain.forgetting.types import LostTexts
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
    assert example.texts is not None
    assert example.texts.prompt.startswith("What colour is the ")
    assert example.texts.answer_before == example.texts.target
    assert example.texts.answer_after == example.texts.prompt.split()[-1].rstrip("?")[::-1]
    assert (len(example.cells), example.cells[5], example.cells[9]) == (10, "r mark", "w mark")


def test_the_firmest_losses_come_first() -> None:
    def firmness(index: int) -> int:
        cells = losses_of(DATA, VIEW)[0].examples[index].cells
        return sum(cell[0] == ("r" if at < 6 else "w") for at, cell in enumerate(cells))

    assert firmness(0) >= firmness(1) >= firmness(2)


def test_only_the_texts_of_both_sides_of_a_verdict_are_asked_for() -> None:
    steps = {record.plan.id: record.plan.checkpoint.step for record in RUN.records}
    wanted = {steps[plan_id]: names for plan_id, names in texts_wanted(DATA, VIEW).items()}
    assert wanted == {600: {"facts", "sums"}, 900: {"reversal"}, 1000: {"facts", "sums", "reversal"}}


def test_every_changed_sample_of_every_verdict_is_found() -> None:
    pairs = changed_pairs(DATA, VIEW)
    assert [(pair.compared.benchmark, pair.before.step, pair.after.step) for pair in pairs] == [
        ("facts", 600, 1000),
        ("sums", 600, 1000),
        ("reversal", 900, 1000),
    ]
    assert [len(pair.compared.lost) for pair in pairs[:2]] == [loss.lost for loss in losses_of(DATA, VIEW)]
    assert len(pairs[2].compared.gained) == 2


def test_without_texts_the_counts_remain() -> None:
    losses = losses_of(replace(DATA, texts={}), VIEW)
    assert [(x.lost, x.examples) for x in losses] == [(70, ()), (53, ())]


def _shown(data: RunData) -> LostTexts:
    texts = losses_of(data, VIEW)[0].examples[0].texts
    assert texts is not None
    return texts


def test_a_sample_without_a_score_at_a_step_is_neither_right_nor_wrong_there() -> None:
    shown = losses_of(DATA, VIEW)[0].examples[0].sample_id
    first = RUN.records[0].outcomes[0]
    assert isinstance(first, EvalResult)
    samples = tuple(
        replace(s, score=None, status=SampleStatus.ERROR) if s.sample_id == shown else s for s in first.samples
    )
    record = replace(RUN.records[0], outcomes=(replace(first, samples=samples), *RUN.records[0].outcomes[1:]))
    data = run_data(replace(RUN, records=(record, *RUN.records[1:])))
    example = next(x for x in losses_of(data, VIEW)[0].examples if x.sample_id == shown)
    assert example.cells[0] == "n"


def test_a_very_long_text_is_shortened_and_control_characters_are_removed() -> None:
    def changed(**fields: object) -> LostTexts:
        return _shown(replace(DATA, texts={k: _changed(r, "facts", **fields) for k, r in DATA.texts.items()}))

    prompt = changed(prompt="x" * 100_000).prompt
    assert len(prompt) < 800
    assert "99300 characters omitted" in prompt
    assert changed(answer="a\x1b[2Jb\x00").answer_after == "a\ufffd[2Jb\ufffd"


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
    cells = losses[0].examples[0].cells
    assert (cells[5], cells[9]) == ("r mark", "w mark")
