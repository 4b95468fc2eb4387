from dataclasses import replace

import pytest

from dashboards.views.samples.pairs import changed_pairs, texts_wanted
from tests.drops import DROP, with_newest
from tests.records import RecordedRun, forgetting_run
from tests.reports import run_data
from tracker.domain.overview.run import overview
from tracker.domain.records.types import Baseline, VerdictWord

RUN = forgetting_run()
DATA = run_data(RUN)
VIEW = overview(RUN.reports, RUN.gaps)


def _wanted(run: RecordedRun) -> dict[int, set[str]]:
    steps = {record.plan.id: record.plan.checkpoint.step for record in run.records}
    found = texts_wanted(run_data(run), overview(run.reports))
    return {steps[plan_id]: names for plan_id, names in found.items()}


def test_only_the_texts_of_both_sides_of_a_verdict_are_asked_for() -> None:
    assert _wanted(RUN) == {600: {"facts", "sums"}, 900: {"reversal"}, 1000: {"facts", "sums", "reversal"}}


def test_every_changed_sample_of_every_verdict_is_found() -> None:
    pairs = changed_pairs(DATA, VIEW)
    assert [
        (one.compared.benchmark, one.before.step, one.after.step, len(one.compared.lost), len(one.compared.gained))
        for one in pairs
    ] == [("facts", 600, 1000, 70, 0), ("sums", 600, 1000, 53, 0), ("reversal", 900, 1000, 0, 2)]


@pytest.mark.parametrize("word", [VerdictWord.FORGOTTEN, VerdictWord.SUSPECT, VerdictWord.INCONCLUSIVE])
def test_an_open_loss_is_shown_against_its_own_baseline_whatever_the_newest_test_compares(word: VerdictWord) -> None:
    found = _wanted(with_newest(RUN, drop=DROP, word=word))
    assert found == {500: {"facts"}, 600: {"sums"}, 900: {"reversal"}, 1000: {"facts", "sums", "reversal"}}


def test_the_samples_of_another_run_are_not_looked_up_here() -> None:
    comparisons = tuple(replace(c, baseline=Baseline.PINNED) for c in RUN.reports[-1].verdicts[0].comparisons)
    for run in (
        with_newest(RUN, comparisons=comparisons),
        with_newest(RUN, drop=replace(DROP, is_pinned=True)),
    ):
        assert _wanted(run) == {600: {"sums"}, 900: {"reversal"}, 1000: {"sums", "reversal"}}


def test_sides_that_were_measured_unlike_are_not_compared() -> None:
    newest = RUN.records[-1]
    outcomes = tuple(replace(o, fingerprint="other") if o.benchmark == "facts" else o for o in newest.outcomes)
    run = replace(RUN, records=(*RUN.records[:-1], replace(newest, outcomes=outcomes)))
    assert [pair.compared.benchmark for pair in changed_pairs(run_data(run), VIEW)] == ["sums", "reversal"]


def test_a_side_whose_record_or_texts_are_gone_is_left_out() -> None:
    assert changed_pairs(run_data(replace(RUN, records=RUN.records[-1:])), VIEW) == ()
    assert changed_pairs(replace(DATA, texts={}), VIEW) == ()
