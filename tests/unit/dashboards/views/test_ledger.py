from dataclasses import replace

import pytest

from dashboards.views.ledger import LOST_SAMPLES, MAX_SHOWN, LedgerView, ledger_view
from dashboards.views.run import build_view
from dashboards.views.samples.texts import MAX_CHARS
from tests.drops import DROP
from tests.judged_run import judged_run
from tests.records import forgetting_run, wide_run
from tests.reports import run_data
from tracker.domain.forgetting.types import RunLedger

RUN = forgetting_run()
LEDGER = run_data(RUN).ledger
assert LEDGER is not None


def view_of(ledger: RunLedger | None) -> LedgerView:
    view = ledger_view(ledger)
    assert view is not None
    return view


VIEW = view_of(LEDGER)


def test_every_benchmark_has_a_line_with_its_error_and_what_chance_would_show() -> None:
    facts = VIEW.entries[0]
    assert (facts.name, facts.samples) == ("facts", "80 samples")
    assert (facts.best, facts.best_at, facts.now) == ("0.875", "steps 500 to 600", "0.050")
    assert (facts.change, facts.interval) == ("−0.825", "−0.904 to −0.746")  # noqa: RUF001
    assert (facts.lost, facts.by_chance, facts.lost_now, facts.kept) == ("62 / 0", "0.3 by chance", "64", "0 %")
    assert facts.lowest == "−0.838 at 1000"  # noqa: RUF001
    assert facts.raw_by_chance.endswith(" by chance")


def test_what_only_rose_has_no_dip() -> None:
    reversal = VIEW.entries[2]
    assert (reversal.change, reversal.lowest, reversal.lowest_by_chance) == ("+0.400", "-", "")


def test_lost_samples_stand_beside_both_answers() -> None:
    facts = VIEW.benchmarks[0]
    assert (facts.benchmark, facts.lost, facts.by_chance, facts.more) == ("facts", "62 of 80 samples", "0.3", 59)
    assert (facts.before, facts.after, facts.before_step, facts.after_step) == (
        "steps 500 to 600",
        "steps 900 to 1000",
        600,
        1000,
    )
    sample = facts.samples[0]
    assert sample.texts is not None
    assert sample.texts.answer_before == sample.texts.target
    assert sample.texts.answer_after != sample.texts.target
    assert sample.cells == ("w", "w", "r", "r", "r", "r mark", "r", "w", "w", "w mark")
    assert sample.life == "incorrect at 100 to 200, correct at 300 to 700, incorrect at 800 to 1000"
    assert facts.changes == "73 learned, 70 forgotten, 0 relearned"


def test_long_texts_are_shortened_and_cleaned() -> None:
    assert LEDGER is not None
    facts = LEDGER.benchmarks[0]
    detail = facts.details[0]
    assert detail.texts is not None
    long = replace(detail, texts=replace(detail.texts, prompt="\x1b" + "x" * 5000))
    view = view_of(replace(LEDGER, benchmarks=(replace(facts, details=(long,)),)))
    texts = view.benchmarks[0].samples[0].texts
    assert texts is not None
    assert len(texts.prompt) < MAX_CHARS + 60
    assert "\x1b" not in texts.prompt


def test_a_short_run_has_scores_and_says_why_there_is_no_more() -> None:
    view = view_of(run_data(replace(RUN, records=RUN.records[:2])).ledger)
    assert [(e.best, e.change, e.lost) for e in view.entries] == [("-", "-", "-")] * 3
    assert {e.now for e in view.entries} == {"0.075", "0.050", "0.013"}
    assert view.notes[0].endswith("too few checkpoints or samples to measure forgetting")
    assert view.benchmarks == ()


def test_subsets_are_told_by_benchmark() -> None:
    assert LEDGER is not None
    facts = LEDGER.benchmarks[0]
    rows = (replace(facts.whole, subset="easy"), replace(facts.whole, subset="hard", forgetting=None, flow=None))
    view = view_of(replace(LEDGER, benchmarks=(replace(facts, subsets=rows), *LEDGER.benchmarks[1:])))
    ((name, entries),) = view.subsets
    assert (name, [e.name for e in entries]) == ("facts", ["easy", "hard"])
    assert (entries[1].now, entries[1].change, entries[1].lost_now) == ("0.037", "-", "64")


@pytest.mark.slow
def test_only_the_largest_losses_are_told_with_samples() -> None:
    assert len(view_of(run_data(wide_run(checkpoints=14, benchmarks=80, samples=10)).ledger).benchmarks) == MAX_SHOWN


def test_a_loss_of_one_checkpoint_is_told_with_samples_from_its_own_baseline() -> None:
    drop = replace(DROP, baseline_steps=(600,), newest_steps=(700,))
    loss = replace(judged_run().incidents[0], drop=drop)
    early = replace(RUN, records=RUN.records[:7], reports=RUN.reports[:7])
    assert view_of(run_data(early).ledger).benchmarks == ()
    view = build_view(run_data(replace(early, incidents=(loss,)))).forgetting.ledger
    assert view is not None
    assert [(one.benchmark, one.before, one.after, len(one.samples)) for one in view.benchmarks] == [
        ("facts", "step 600", "step 700", LOST_SAMPLES)
    ]


def test_there_is_no_section_without_scores() -> None:
    assert ledger_view(None) is None
    assert ledger_view(run_data(replace(RUN, records=())).ledger) is None
