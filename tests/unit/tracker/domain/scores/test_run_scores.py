"""The scores of a run are what its records say, however they came together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus, ServeSpec
from tests.score_tables import Table, table_of, table_of_records
from tests.unit.tracker.domain.making import failure_of, record_of, suite_of
from tracker.domain.records.losses import Measure
from tracker.domain.scores.run_scores import RunScores, scores_of, with_record, without_step
from tracker.domain.scores.sample_columns import SampleColumns, columns_of
from tracker.domain.scores.series import BenchmarkSeries

SUITE = suite_of(("sums", "facts"), max_tokens=100)
LOW = suite_of(("sums", "facts"), name="low", higher_is_better=False)

SAMPLES = st.lists(
    st.builds(
        SampleScore,
        sample_id=st.sampled_from("abcdefgh"),
        subset=st.just("s"),
        score=st.none() | st.sampled_from([0.0, 1.0, 0.3, 0.7]),
        status=st.sampled_from(SampleStatus),
        output_tokens=st.none() | st.integers(0, 100),
    ),
    max_size=6,
)


@st.composite
def records(draw: st.DrawFn) -> EvalRecord:
    suite = draw(st.sampled_from([SUITE, LOW]))
    step = draw(st.sampled_from([100, 200, 300, 400]))
    dtype = draw(st.sampled_from(["auto", "auto", "float32"]))
    blank = record_of(step, {"sums": [], "facts": []}, suite=suite, serve=ServeSpec(dtype=dtype))
    outcomes = [
        failure_of(o.benchmark) if draw(st.integers(0, 5)) == 0 else replace(o, samples=tuple(draw(SAMPLES)))  # type: ignore[arg-type]
        for o in blank.outcomes
    ]
    finished_at = blank.finished_at + timedelta(seconds=draw(st.integers(0, 3)))
    plan = replace(blank.plan, id=f"{blank.plan.id[:8]}-{draw(st.integers(0, 1))}")
    return replace(blank, plan=plan, outcomes=tuple(outcomes), finished_at=finished_at)


def columns(record: EvalRecord) -> Mapping[str, SampleColumns]:
    return {o.benchmark: columns_of(o.samples) for o in record.outcomes if isinstance(o, EvalResult)}


def one_by_one(found: Sequence[EvalRecord]) -> RunScores:
    scores = RunScores(run_id="run")
    for record in found:
        scores = with_record(scores, record, columns(record))
    return scores


def at_once(found: Sequence[EvalRecord]) -> RunScores:
    return scores_of("run", ((record, columns(record)) for record in found))


def once_each(found: Sequence[EvalRecord]) -> list[EvalRecord]:
    """A history holds one record of a plan."""
    return list({record.plan.id: record for record in found}.values())


def assert_close(found: Table, wanted: Table) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == (None if value is None else pytest.approx(value, abs=1e-12))


def named(series: BenchmarkSeries) -> dict[str, tuple[str, str]]:
    names = zip(series.subsets, series.samples.cluster_ids.tolist(), strict=True)
    return dict(zip(series.sample_ids, names, strict=True))


def assert_same(one: RunScores, other: RunScores) -> None:
    """Equal in everything but the order of samples; sums to rounding."""
    assert one.series.keys() == other.series.keys()
    assert one.benchmarks() == other.benchmarks()
    for key, mine in one.series.items():
        theirs = other.series[key]
        assert [p.id for p in mine.plans] == [p.id for p in theirs.plans]
        assert (mine.steps, mine.finished_at, mine.metric) == (theirs.steps, theirs.finished_at, theirs.metric)
        assert named(mine) == named(theirs)
        np.testing.assert_array_equal(mine.coverage, theirs.coverage)
        for measure in Measure:
            a, b = mine.matrices[measure], theirs.matrices[measure]
            rows = np.arange(a.codes.shape[0])
            np.testing.assert_allclose(a.products(rows), b.products(rows), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(a.sums, b.sums, rtol=1e-12, atol=1e-12)
            np.testing.assert_array_equal(a.missing, b.missing)
    assert table_of(one) == table_of(other)


@given(st.lists(records(), max_size=7).map(once_each), st.randoms(use_true_random=False))
def test_records_in_any_order_at_once_or_one_by_one_give_the_same_scores(
    found: list[EvalRecord], random: object
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    scores = one_by_one(shuffled)
    assert_close(table_of(scores), table_of_records(found))
    assert_same(scores, at_once(found))
    assert_same(one_by_one(found), at_once(shuffled))


@given(st.lists(records(), min_size=1, max_size=7).map(once_each), st.sampled_from([100, 200, 300, 400]))
def test_a_step_that_is_taken_out_leaves_nothing(found: list[EvalRecord], step: int) -> None:
    left = [record for record in found if record.plan.checkpoint.step != step]
    assert_same(without_step(one_by_one(found), step), at_once(left))
    assert_same(without_step(at_once(found), step), one_by_one(left))


def series_of(*found: EvalRecord, benchmark: str = "sums") -> BenchmarkSeries:
    one, other = one_by_one(found), at_once(found)
    assert_same(one, other)
    return one.of(benchmark)[-1]


def scored(step: int, samples: Sequence[SampleScore], **settings: object) -> EvalRecord:
    record = record_of(step, {"sums": []}, **settings)  # type: ignore[arg-type]
    (result,) = record.outcomes
    return replace(record, outcomes=(replace(result, samples=tuple(samples)),))  # type: ignore[arg-type]


def sample(sample_id: str, score: float | None = 1.0, **fields: object) -> SampleScore:
    status = SampleStatus.ERROR if score is None else SampleStatus.SCORED
    return replace(SampleScore(sample_id=sample_id, subset="s", score=score, status=status), **fields)  # type: ignore[arg-type]


def test_samples_that_appear_later_have_no_score_before() -> None:
    series = series_of(scored(100, [sample("a"), sample("b", 0.0)]), scored(200, [sample("c"), sample("a")]))
    assert series.sample_ids == ("a", "b", "c")
    matrix = series.matrices[Measure.SCORE]
    assert matrix.missing.tolist() == [1, 1]
    (contrast,) = matrix.contrasts(np.array([[-1.0, 1.0]]))
    assert contrast.n == 1
    assert contrast.common_fraction == pytest.approx(1 / 3)


def test_samples_of_a_checkpoint_that_comes_late_are_added() -> None:
    series = series_of(scored(200, [sample("a"), sample("b")]), scored(100, [sample("z"), sample("a")]))
    assert sorted(series.sample_ids) == ["a", "b", "z"]
    assert series.matrices[Measure.SCORE].missing.tolist() == [1, 1]


def test_repeats_are_averaged_and_never_counted_as_samples() -> None:
    record = scored(100, [sample("a", 1.0), sample("a", 0.0, repeat=1), sample("b", 1.0), sample("b", None, repeat=1)])
    series = series_of(record)
    assert series.matrices[Measure.SCORE].n_samples == 2
    assert table_of(one_by_one([record]))[series.key, 100, "a", Measure.SCORE] == 0.5
    assert series.coverage.tolist() == [0.75]


def test_where_lower_is_better_scores_are_turned_round() -> None:
    suite = suite_of(("sums",), higher_is_better=False)
    series = series_of(record_of(100, {"sums": [0.0, 0.25, None]}, suite=suite))
    assert series.higher_is_better is False
    assert series.matrices[Measure.SCORE].means.tolist() == [0.875]


def test_longer_and_truncated_answers_go_down() -> None:
    suite = suite_of(("sums",), max_tokens=200)
    answers = [sample("a", output_tokens=50), sample("b", output_tokens=200, status=SampleStatus.TRUNCATED)]
    series = series_of(scored(100, answers, suite=suite))
    assert series.matrices[Measure.OUTPUT_LENGTH].means.tolist() == [0.375]
    assert series.matrices[Measure.COMPLETENESS].means.tolist() == [0.5]


def test_answers_of_unknown_length_have_no_length() -> None:
    series = series_of(scored(100, [sample("a"), sample("b")]))
    assert series.matrices[Measure.OUTPUT_LENGTH].missing.tolist() == [2]
    assert math.isnan(series.matrices[Measure.OUTPUT_LENGTH].means[0])


def test_without_an_own_limit_the_suites_limit_is_the_longest_answer() -> None:
    suite = suite_of(("sums",))
    half = suite.generation.max_tokens // 2
    series = series_of(scored(100, [sample("a", output_tokens=half)], suite=suite))
    assert series.matrices[Measure.OUTPUT_LENGTH].means.tolist() == [0.5]


def test_other_settings_and_other_serving_begin_another_series() -> None:
    plain = record_of(100, {"sums": [1.0]})
    repeated = record_of(200, {"sums": [1.0]}, suite=suite_of(("sums",), few_shot=3))
    served = record_of(300, {"sums": [1.0]}, serve=ServeSpec(dtype="float32"))
    scores = at_once([served, plain, repeated])
    assert [s.steps for s in scores.of("sums")] == [(100,), (200,), (300,)]
    assert scores.of("facts") == ()
    assert [s.steps for s in scores.of("sums", suite="skills")] == [(100,), (200,), (300,)]
    assert scores.of("sums", suite="other") == ()


def test_benchmarks_are_named_by_their_first_checkpoint_and_then_as_in_the_suite() -> None:
    both = suite_of(("z", "a"))
    late, early = record_of(300, {"b": [1.0]}), record_of(200, {"z": [1.0], "a": [1.0]}, suite=both)
    assert at_once([late, early]).benchmarks() == one_by_one([late, early]).benchmarks() == ("z", "a", "b")


def test_rows_are_found_by_step_and_by_coverage() -> None:
    series = series_of(
        record_of(300, {"sums": [1.0, 1.0, None, 1.0]}),
        record_of(100, {"sums": [1.0, 1.0, 1.0, 1.0]}),
        record_of(200, {"sums": [1.0, None, None, 1.0]}),
    )
    assert (series.steps, series.row_of(300), series.row_of(150)) == ((100, 200, 300), 2, None)
    assert series.usable_rows(0.75).tolist() == [0, 2]
    assert series.usable_rows(0.8).tolist() == [0]
    assert series.usable_rows(1.1).tolist() == []


def test_names_are_kept_once_for_all_checkpoints() -> None:
    ids = [f"sample {i}" for i in range(50)]
    found = [scored(step, [sample(str(i)) for i in (ids if step % 200 else reversed(ids))]) for step in (100, 200, 300)]
    for series in (series_of(*found), at_once(found).of("sums")[0]):
        assert {id(asked) for asked in series.asked} == {id(series.samples)}


def test_a_run_of_right_and_wrong_takes_three_bytes_for_a_sample_at_a_checkpoint() -> None:
    rng = np.random.default_rng(4)
    found = [
        scored(
            step,
            [sample(f"s{i}", float(rng.random() < 0.5), output_tokens=int(rng.integers(1, 200))) for i in range(300)],
        )
        for step in range(100, 2100, 100)
    ]
    series = at_once(found).of("sums")[0]
    assert sum(matrix.codes.nbytes for matrix in series.matrices.values()) == 3 * 300 * 20
