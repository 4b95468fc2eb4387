"""Which checkpoint `best` names: one of the peak, never the luckiest single one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalRecord, EvalResult
from tests.unit.tracker.domain.making import record_of, suite_of
from tracker.domain.best.choice import CHAMPION, best_by_benchmark, best_of, champions_of
from tracker.domain.records.losses import Closing, Incident, Measure
from tracker.domain.scores.run_scores import RunScores, scores_of
from tracker.domain.scores.sample_columns import columns_of

QUESTIONS = 100


def record(step: int, rights: Mapping[str, int], suite: str = "main") -> EvalRecord:
    """Return a record of a checkpoint that answered so many of `QUESTIONS` rightly, by benchmark."""
    given = {name: [float(at < right) for at in range(QUESTIONS)] for name, right in rights.items()}
    return record_of(step, given, suite=suite_of(tuple(rights), name=suite))


def changed(one: EvalRecord, **of_results: object) -> EvalRecord:
    return replace(one, outcomes=tuple(replace(o, **of_results) for o in one.outcomes))  # type: ignore[arg-type]


def scores(*records: EvalRecord) -> RunScores:
    columns = [{o.benchmark: columns_of(o.samples) for o in r.outcomes if isinstance(o, EvalResult)} for r in records]
    return scores_of("run", zip(records, columns, strict=True))


def run_of(rights: Sequence[int], name: str = "facts") -> RunScores:
    return scores(*(record(100 * (at + 1), {name: right}) for at, right in enumerate(rights)))


def test_one_lucky_checkpoint_is_not_the_best() -> None:
    found = best_of(run_of([50, 51, 50, 62, 49, 50, 51, 58, 59, 58, 57]))
    assert found is not None
    assert found.block in {(800, 900), (900, 1000)}
    assert found.checkpoint.step in {800, 900}
    assert found.mean == pytest.approx(0.585)


def test_a_broken_checkpoint_among_good_ones_is_never_named() -> None:
    rights = [70] * 20 + [80] * 9 + [2] + [60] * 20
    found = best_of(run_of(rights))
    assert found is not None
    assert rights[found.checkpoint.step // 100 - 1] == 80


def test_a_run_that_gets_better_has_its_newest_checkpoint_as_the_best_and_one_that_forgets_an_early_one() -> None:
    up, down = best_of(run_of(range(10, 70))), best_of(run_of(range(90, 30, -1)))
    assert up is not None
    assert up.checkpoint.step == 6000
    assert down is not None
    assert down.checkpoint.step <= 500, "no later than the median of the first ten"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_short_run_has_a_best_one(count: int) -> None:
    found = best_of(run_of([40, 50, 60][:count]))
    assert found is not None
    assert found.checkpoint.step == 100 * count


def test_without_any_score_there_is_none() -> None:
    assert best_of(RunScores(run_id="run")) is None
    assert best_of(run_of([50, 60]), "other") is None
    assert best_by_benchmark(RunScores(run_id="run")) == {}


def test_over_a_suite_every_benchmark_counts_as_much_and_for_one_only_it() -> None:
    steps = [{"facts": 90 - at, "sums": 10 + 4 * at} for at in range(10)]
    run = scores(*(record(100 * (at + 1), rights) for at, rights in enumerate(steps)))
    whole, facts = best_of(run), best_of(run, "facts")
    assert whole is not None
    assert facts is not None
    assert (whole.checkpoint.step, whole.benchmarks) == (1000, ("facts", "sums"))
    assert facts.checkpoint.step <= 200
    assert best_by_benchmark(run).keys() == {"facts", "sums"}


def test_a_checkpoint_that_was_asked_a_part_or_lacks_a_benchmark_is_not_the_best_of_a_suite() -> None:
    whole = [record(100 * at, {"facts": 50, "sums": 50}) for at in (1, 2, 3)]
    part = changed(record(400, {"facts": 99, "sums": 99}), left_out=900)
    lacking = record(500, {"facts": 99, "sums": 99})
    lacking = replace(lacking, outcomes=lacking.outcomes[:1])
    found = best_of(scores(*whole, part, lacking))
    assert found is not None
    assert found.checkpoint.step == 300


def test_where_lower_is_better_the_lowest_is_the_best() -> None:
    rights = [50, 40, 9, 8]
    records = (
        changed(record(100 * (at + 1), {"errors": right}), higher_is_better=False) for at, right in enumerate(rights)
    )
    found = best_of(scores(*records))
    assert found is not None
    assert found.checkpoint.step == 400
    assert found.mean == pytest.approx(1 - 0.085)


def test_of_several_suites_the_one_that_was_measured_most_counts() -> None:
    often = [record(100 * at, {"facts": 50 + at}) for at in range(1, 7)]
    seldom = [record(100 * at, {"facts": 99 - 10 * at}, suite="sweep") for at in (1, 6)]
    found = best_of(scores(*often, *seldom))
    assert found is not None
    assert found.checkpoint.step == 600
    assert found.mean == pytest.approx(0.555)


@given(st.lists(st.integers(min_value=0, max_value=QUESTIONS), min_size=1, max_size=30))
def test_no_block_of_neighbours_is_better_and_the_named_one_stands_in_it(rights: list[int]) -> None:
    found = best_of(run_of(rights))
    assert found is not None
    width = len(found.block)
    blocks = [np.mean(rights[at : at + width]) / QUESTIONS for at in range(len(rights) - width + 1)]
    assert found.mean == pytest.approx(max(blocks))
    assert found.checkpoint.step in found.block
    of_block = [rights[step // 100 - 1] for step in found.block]
    assert rights[found.checkpoint.step // 100 - 1] >= np.median(of_block)


def test_no_imported_checkpoint_is_the_best_of_a_run_that_was_measured_itself() -> None:
    own = [record(100 * at, {"facts": 50}) for at in (1, 2, 3)]
    others = [_imported(record(100 * at, {"facts": 90, "sums": 90})) for at in (3, 4, 5)]
    found = best_of(scores(*own, *others))
    assert found is not None
    assert (found.checkpoint.uri, found.mean) == (own[-1].plan.checkpoint.uri, 0.5)
    assert set(best_by_benchmark(scores(*own, *others))) == {"facts"}
    alone = best_of(scores(*others))
    assert alone is not None
    assert alone.mean == 0.9


def _imported(one: EvalRecord) -> EvalRecord:
    checkpoint = replace(one.plan.checkpoint, uri=f"imported:m/checkpoint-{one.plan.checkpoint.step}", digest="other")
    warmer = replace(one.plan.suite, generation=replace(one.plan.suite.generation, temperature=1.0))
    plan = replace(one.plan, id=f"{one.plan.id}-imported", checkpoint=checkpoint, suite=warmer)
    return replace(changed(one, fingerprint="of others"), plan=plan)


def test_a_broken_checkpoint_is_not_the_best() -> None:
    run = run_of([50, 51, 70, 52])
    broken = Incident(
        run_id="run",
        suite="skills",
        benchmark="",
        opened_step=300,
        onset_step=300,
        opened_digest="of it",
        closed_step=400,
        closed_by=Closing.TRANSIENT,
        last_step=300,
    )
    found, before = best_of(run, incidents=[broken]), best_of(run)
    assert found is not None
    assert before is not None
    assert 300 in before.block
    assert 300 not in found.block


def test_a_checkpoint_with_an_open_loss_is_not_the_best_and_the_reason_says_so() -> None:
    """The mean of both still rises while one of them is lost."""
    records = [record(step, {"facts": f, "sums": s}) for step, f, s in _FORGETTING]
    run = scores(*records)
    lost = Incident(
        run_id="run", suite="skills", benchmark="facts", opened_step=400, onset_step=400, opened_digest="of it"
    )
    champions = {c.alias: c for c in champions_of(run, [lost])}
    assert {alias: c.checkpoint.step for alias, c in champions.items()} == {
        CHAMPION: 300,
        "best-facts": 300,
        "best-sums": 600,
    }
    assert champions[CHAMPION].reason.endswith("; step 600 scores higher, with a loss that is open")
    accepted = replace(lost, closed_step=600, closed_by=Closing.ACCEPTED)
    assert {c.checkpoint.step for c in champions_of(run, [accepted])} == {300, 600}
    subset = replace(lost, subset="a", measure=Measure.OUTPUT_LENGTH)
    assert champions_of(run, [subset])[0].checkpoint.step == 600


_FORGETTING = ((100, 60, 10), (200, 62, 12), (300, 64, 14), (400, 40, 60), (500, 42, 80), (600, 44, 90))
