import json
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tests.drops import DROP
from tests.records import RecordedRun, forgetting_run, scores_of_run
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.forgetting.types import BenchmarkLedger, RunLedger
from tracker.domain.forgetting.wording import notes
from tracker.domain.records.losses import Closing, Incident
from tracker.domain.records.policy import Policy

RUN = forgetting_run()
POLICY = Policy(phases=RUN.phases)
Change = Callable[[int, int, SampleScore], SampleScore]
LEDGER = run_ledger(scores_of_run(RUN), POLICY, details=3)


def ledger_of(run: RecordedRun, policy: Policy = POLICY) -> RunLedger:
    return run_ledger(scores_of_run(run), policy, details=3)


def of(name: str, ledger: RunLedger = LEDGER) -> BenchmarkLedger:
    return next(b for b in ledger.benchmarks if b.benchmark == name)


def changed(run: RecordedRun, change: Change) -> RecordedRun:
    """Return the run with `change(step, index, sample)` in place of every sample of facts."""

    def of_result(result: EvalResult, step: int) -> EvalResult:
        return replace(result, samples=tuple(change(step, i, s) for i, s in enumerate(result.samples)))

    return with_results(run, lambda result, step: of_result(result, step) if result.benchmark == "facts" else result)


def with_results(run: RecordedRun, change: Callable[[EvalResult, int], EvalResult]) -> RecordedRun:
    """Return the run with `change(result, step)` in place of every result."""

    def of_record(record: EvalRecord) -> EvalRecord:
        step = record.plan.checkpoint.step
        return replace(
            record, outcomes=tuple(change(o, step) if isinstance(o, EvalResult) else o for o in record.outcomes)
        )

    return replace(run, records=tuple(of_record(r) for r in run.records))


def test_the_largest_loss_comes_first() -> None:
    assert [b.benchmark for b in LEDGER.benchmarks] == ["facts", "sums", "reversal"]


def test_a_forgotten_benchmark_says_where_its_best_was_and_what_is_left() -> None:
    found = of("facts").whole.forgetting
    assert found is not None
    assert (found.peak.first_step, found.peak.last_step, found.peak.mean) == pytest.approx((500, 600, 0.875))
    assert (found.last.first_step, found.last.last_step, found.last.mean) == pytest.approx((900, 1000, 0.05))
    assert found.forgetting == pytest.approx(0.825)
    assert found.p_value < 0.01
    assert found.retention == pytest.approx(0.0, abs=0.02)


def test_every_phase_says_what_became_of_what_was_learned_in_it() -> None:
    assert [(b.benchmark, b.since.learned_in) for b in LEDGER.benchmarks if b.since] == [
        ("facts", "skills"),
        ("sums", "skills"),
        ("reversal", "reversal only"),
    ]
    (skills,) = LEDGER.transfers
    assert (skills.phase, skills.transfer.benchmarks) == ("skills", ("facts", "sums"))
    assert skills.transfer.mean == pytest.approx(((0.05 - 0.875) + (0.075 - 0.65)) / 2)
    assert LEDGER.backward_transfer == skills.transfer


def test_without_phases_there_is_no_transfer_and_the_windows_lie_around_the_peak() -> None:
    ledger = ledger_of(RUN, Policy())
    assert (ledger.transfers, ledger.backward_transfer, of("sums", ledger).since) == ((), None, None)
    window = of("facts", ledger).window
    assert window is not None
    assert (window.before_steps, window.after_steps) == ((500, 600), (900, 1000))


def test_lost_samples_were_right_before_the_border_and_are_wrong_now() -> None:
    facts = of("facts")
    assert facts.window is not None
    assert (facts.window.before_steps, facts.window.after_steps) == ((500, 600), (900, 1000))
    assert facts.whole.flow is not None
    assert (facts.whole.flow.lost, facts.whole.flow.gained) == (len(facts.lost), 0)
    assert 60 <= len(facts.lost) <= 70
    assert facts.whole.flow.expected_false < 1
    assert [d.sample_id for d in facts.details] == list(facts.lost[:3])
    assert all((d.known_before, d.known_after) == (1.0, 0.0) for d in facts.details)
    assert all(d.right[5] and d.right[9] is False for d in facts.details)


def test_a_sample_that_is_told_has_its_life() -> None:
    detail = of("facts").details[0]
    assert detail.right == (False, False, True, True, True, True, True, False, False, False)
    assert [(e.step, str(e.change)) for e in detail.events] == [(300, "learned"), (800, "forgotten")]


def test_a_benchmark_that_was_only_learned_has_lost_nothing() -> None:
    reversal = of("reversal")
    assert reversal.lost == ()
    assert reversal.whole.flow is not None
    assert reversal.whole.flow.net_lost < 0


def test_a_checkpoint_with_too_few_scores_does_not_count() -> None:
    def drop(step: int, index: int, sample: SampleScore) -> SampleScore:
        return replace(sample, score=None) if step == 600 and index % 4 == 0 else sample

    facts = of("facts", ledger_of(changed(RUN, drop)))
    assert facts.passed_over == (600,)
    assert 600 not in facts.steps
    assert facts.whole.forgetting is not None
    assert len(facts.whole.means) == 9


def test_a_benchmark_without_enough_scores_anywhere_is_named_with_its_checkpoints() -> None:
    facts = of("facts", ledger_of(RUN, replace(POLICY, min_coverage=1.1)))
    assert facts.steps == ()
    assert facts.passed_over == tuple(range(100, 1100, 100))
    assert (facts.whole.forgetting, facts.whole.means, facts.lost) == (None, (), ())


def test_checkpoints_that_were_measured_otherwise_are_named_and_left_out() -> None:
    run = with_results(RUN, lambda result, step: replace(result, fingerprint="old") if step <= 300 else result)
    facts = of("facts", ledger_of(run))
    assert facts.measured_otherwise == (100, 200, 300)
    assert facts.steps == (400, 500, 600, 700, 800, 900, 1000)


def test_what_the_first_checkpoint_knew_counts_as_learned_where_guessing_is_known() -> None:
    def known(step: int, index: int, sample: SampleScore) -> SampleScore:
        return replace(sample, score=1.0 if index < (60 if step <= 600 else 40) else 0.0)

    run = changed(forgetting_run(trouble=False), known)
    unknown = of("facts", ledger_of(run)).whole.forgetting
    told = of("facts", ledger_of(run, replace(POLICY, chance={"facts": 0.25}))).whole.forgetting
    assert unknown is not None
    assert told is not None
    assert unknown.retention is None
    assert told.retention == pytest.approx((0.5 - 0.25) / (0.75 - 0.25))


def test_the_jitter_is_that_of_the_newest_phase() -> None:
    quiet, loud = (of("facts", ledger_of(RUN, policy)).whole.forgetting for policy in (POLICY, Policy()))
    assert quiet is not None
    assert loud is not None
    assert quiet.forgetting == loud.forgetting
    assert quiet.stderr < loud.stderr  # the leap at the border is no jitter


def test_subsets_are_followed_on_their_own_the_largest_loss_first() -> None:
    def split(step: int, index: int, sample: SampleScore) -> SampleScore:
        subset = "kept" if index % 2 else "gone"
        score = 1.0 if subset == "kept" or step <= 600 else 0.0
        return replace(sample, subset=subset, score=score)

    facts = of("facts", ledger_of(changed(forgetting_run(trouble=False), split)))
    assert [(row.subset, row.samples) for row in facts.subsets] == [("gone", 40), ("kept", 40)]
    gone, kept = (row.forgetting for row in facts.subsets)
    assert gone is not None
    assert kept is not None
    assert (gone.forgetting, kept.forgetting) == pytest.approx((1.0, 0.0))
    assert kept.stderr > 0.005  # samples that never changed are not free of error
    flows = [row.flow for row in facts.subsets]
    assert [(f.lost, f.gained) for f in flows if f] == [(40, 0), (0, 0)]


def test_a_subset_of_few_samples_has_its_scores_and_no_more() -> None:
    def split(_step: int, index: int, sample: SampleScore) -> SampleScore:
        return replace(sample, subset="few" if index < 3 else "many")

    rows = {row.subset: row for row in of("facts", ledger_of(changed(RUN, split))).subsets}
    assert rows["few"].forgetting is None
    assert len(rows["few"].means) == 10
    assert rows["many"].forgetting is not None


def test_scores_outside_0_to_1_have_levels_and_no_lost_samples() -> None:
    def perplexity(step: int, _index: int, sample: SampleScore) -> SampleScore:
        return replace(sample, score=12.0 if step <= 600 else 30.0)

    run = changed(forgetting_run(trouble=False), perplexity)
    lower = with_results(run, lambda result, _: replace(result, higher_is_better=False))
    facts = of("facts", ledger_of(lower))
    assert facts.whole.flow is None
    assert facts.lost == ()
    assert facts.whole.forgetting is not None
    assert facts.whole.forgetting.forgetting == pytest.approx(18.0)
    assert facts.whole.forgetting.peak.mean == pytest.approx(12.0)
    assert facts.whole.forgetting.relative is None
    assert facts.whole.means[0] == pytest.approx(12.0)


@pytest.mark.parametrize("checkpoints", [1, 2, 4])
def test_the_first_checkpoints_have_scores_and_no_ledger_yet(checkpoints: int) -> None:
    facts = of("facts", ledger_of(replace(RUN, records=RUN.records[:checkpoints])))
    assert len(facts.whole.means) == checkpoints
    assert (facts.whole.forgetting, facts.whole.flow, facts.window, facts.lost) == (None, None, None, ())


def test_a_run_without_records_is_an_empty_ledger() -> None:
    ledger = ledger_of(replace(RUN, records=()))
    assert (ledger.benchmarks, ledger.steps, ledger.backward_transfer) == ((), (), None)


def test_checkpoints_of_a_loss_that_is_over_are_no_part_of_the_peak() -> None:
    found = run_ledger(scores_of_run(RUN), POLICY, [of_facts(600, 500, Closing.RECOVERED, 800)], details=0)
    over, without = of("facts", found).whole.forgetting, of("facts").whole.forgetting
    assert over is not None
    assert without is not None
    assert (without.peak.first_step, without.peak.last_step) == (500, 600)
    assert not {500, 600} & {over.peak.first_step, over.peak.last_step}
    assert of("facts", found).whole.means == of("facts").whole.means


def test_after_an_accepted_loss_the_newest_checkpoints_are_compared_with_those_before_it() -> None:
    drop = replace(DROP, baseline_steps=(600,), newest_steps=(800,))
    loss = replace(of_facts(700, 700, Closing.ACCEPTED, 800), last_step=None, drop=drop)
    found = of("facts", run_ledger(scores_of_run(RUN), POLICY, [loss], details=0))
    assert found.whole.forgetting is not None
    peak, last = found.whole.forgetting.peak, found.whole.forgetting.last
    assert (peak.first_step, peak.last_step, last.last_step, found.accepted_step) == (600, 600, 1000, 800)
    assert "facts: level accepted at step 800, still compared with the one before the loss" in notes(found)


def test_of_two_losses_that_began_together_the_one_with_the_settings_of_the_series_counts() -> None:
    (series,) = (s for s in scores_of_run(RUN).series.values() if s.key.benchmark == "facts")
    loss = replace(of_facts(700, 700, Closing.RECOVERED, 800), closed_step=None, closed_by=None, last_step=None)
    own = replace(loss, drop=replace(DROP, baseline_steps=(600,)), series=(series.key.settings,))
    other = replace(loss, drop=replace(DROP, baseline_steps=(400,)), series=("other",))
    found = of("facts", run_ledger(scores_of_run(RUN), POLICY, [own, other], details=0))
    assert found.whole.forgetting is not None
    assert found.whole.forgetting.peak.last_step == 600


def of_facts(opened: int, onset: int, closed_by: Closing, closed: int) -> Incident:
    return Incident(
        run_id=RUN.records[0].plan.checkpoint.run_id,
        suite=RUN.records[0].plan.suite.name,
        benchmark="facts",
        opened_step=opened,
        onset_step=onset,
        closed_step=closed,
        closed_by=closed_by,
        last_step=closed - 100,
        opened_digest="",
    )


def test_texts_of_described_samples_come_from_two_checkpoints() -> None:
    records = {r.plan.id: r for r in RUN.records}
    described = {b.benchmark for b in LEDGER.benchmarks if b.details}
    assert described < {b.benchmark for b in LEDGER.benchmarks}
    read: list[int] = []

    def record(plan_id: str, benchmarks: Collection[str]) -> EvalRecord | None:
        assert set(benchmarks) == described, "nothing else is read"
        read.append(records[plan_id].plan.checkpoint.step)
        return records[plan_id]

    told = with_texts(LEDGER, record)
    assert sorted(read) == [600, 1000]
    for detail in of("facts", told).details:
        assert detail.texts is not None
        assert detail.texts.prompt.startswith("What colour is the")
        assert detail.texts.answer_before == detail.texts.target
        assert detail.texts.answer_after != detail.texts.target
        assert (detail.texts.right_before, detail.texts.right_after) == (True, False)


def test_a_record_that_is_gone_leaves_the_texts_empty() -> None:
    assert all(d.texts is None for d in of("facts", with_texts(LEDGER, lambda *_: None)).details)


def test_the_ledger_is_json() -> None:
    document = json.loads(TypeAdapter(RunLedger).dump_json(LEDGER))
    assert document["benchmarks"][0]["whole"]["forgetting"]["forgetting"] == pytest.approx(0.825)
    assert document["benchmarks"][0]["details"][0]["events"][0] == {"step": 300, "change": "learned"}


def test_the_order_of_records_does_not_matter() -> None:
    order = np.random.default_rng(1).permutation(len(RUN.records))
    shuffled = replace(RUN, records=tuple(RUN.records[i] for i in order))
    assert ledger_of(shuffled) == LEDGER


def test_subsets_are_averaged_over_the_checkpoints_of_their_benchmark() -> None:
    subsets = [f"s{number % 2}" for number in range(40)]
    run = changed(RUN, lambda _, index, sample: replace(sample, subset=subsets[index % 40]))
    of_whole, of_subset = of_facts(800, 800, Closing.RECOVERED, 1000), of_facts(800, 800, Closing.RECOVERED, 900)
    found = of("facts", run_ledger(scores_of_run(run), POLICY, [of_whole, replace(of_subset, subset="s0")], details=0))
    blocks = {
        (row.forgetting.peak.first_step, row.forgetting.last.first_step) for row in found.subsets if row.forgetting
    }
    assert found.whole.forgetting is not None
    assert {last for _, last in blocks} == {found.whole.forgetting.last.first_step}
