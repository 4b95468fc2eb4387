"""What a mean does not show: single subsets, answers that get longer, answers that are cut off."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from eval_jobs.types import EvalRecord, EvalResult, SampleStatus
from tests.unit.tracker.domain.judging import changes_of, followed, run_of
from tests.unit.tracker.domain.making import record_of
from tests.unit.tracker.domain.regression.tables import flipping
from tracker.domain.records.losses import Closing, Measure
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import Report, Verdict, VerdictWord
from tracker.domain.scores.matrix import FloatArray

POLICY = Policy(planned_checkpoints=40)
LONGEST = 256
"""The default of a suite."""


def records(
    table: FloatArray,
    *,
    subsets: int = 1,
    tokens: FloatArray | None = None,
    truncated: FloatArray | None = None,
) -> list[EvalRecord]:
    """One record a row; samples are dealt to subsets in blocks; tokens and truncation of shape (T, n)."""
    size = table.shape[1] // subsets
    return [
        _dressed(record_of(100 * (t + 1), {"sums": row.tolist()}), size, _row(tokens, t), _row(truncated, t))
        for t, row in enumerate(table)
    ]


def _row(values: FloatArray | None, t: int) -> FloatArray | None:
    return None if values is None else values[t]


def _dressed(record: EvalRecord, size: int, tokens: FloatArray | None, truncated: FloatArray | None) -> EvalRecord:
    (result,) = record.outcomes
    assert isinstance(result, EvalResult)
    samples = tuple(
        replace(
            sample,
            subset=f"subject {i // size}",
            output_tokens=None if tokens is None else int(tokens[i]),
            status=SampleStatus.TRUNCATED if truncated is not None and truncated[i] else sample.status,
        )
        for i, sample in enumerate(result.samples)
    )
    return replace(record, outcomes=(replace(result, samples=samples),))


def found(reports: Sequence[Report]) -> list[Verdict]:
    return [v for r in reports for v in r.findings]


def losing(table: FloatArray, subject: int, size: int, newest: range, points: float) -> FloatArray:
    """One subject loses so many points of its samples that were right."""
    table = table.copy()
    columns = np.arange(subject * size, subject * size + round(points * size))
    for t in newest:
        table[t, columns] = 0.0
    return table


# --- subsets


@pytest.mark.slow
def test_one_subject_of_twenty_that_loses_twenty_points_is_a_finding_and_the_benchmark_is_not() -> None:
    healthy = flipping(3, 24, n=4000, ability=0.85)
    table = losing(healthy, 7, 200, range(16, 24), 0.25)
    reports = followed(records(table, subsets=20), POLICY)
    losses = found(reports)
    assert {(v.benchmark, v.subset, v.measure) for v in losses} == {("sums", "subject 7", Measure.SCORE)}
    assert losses[0].word is VerdictWord.REGRESSED
    assert losses[0].score == pytest.approx(
        table[next(i for i, r in enumerate(reports) if r.findings), 1400:1600].mean()
    )
    assert {r.verdicts[0].word for r in reports} & {VerdictWord.REGRESSED, VerdictWord.FORGOTTEN} == set()
    opened = changes_of(reports)
    assert [(e.subset, e.closed_step) for e in opened if not e.forgotten] == [("subject 7", None)]
    assert 1700 <= opened[0].opened_step <= 2000
    assert 1500 <= opened[0].onset_step <= 1700


def test_a_subject_that_comes_back_is_recovered_once() -> None:
    table = losing(flipping(4, 30, n=2000, ability=0.85), 2, 200, range(14, 20), 0.4)
    reports = followed(records(table, subsets=10), POLICY)
    words = [v.word for v in found(reports) if v.word is not VerdictWord.FORGOTTEN]
    assert words.count(VerdictWord.RECOVERED) == 1
    assert words[-1] is VerdictWord.RECOVERED
    closed = [e for r in reports for e in r.incidents if e.subset and e.closed_step is not None]
    assert [(e.subset, e.last_step) for e in closed] == [("subject 2", 2000)]


def test_an_open_loss_of_a_subject_has_the_numbers_of_the_newest_checkpoint_although_its_test_does_not_show_it() -> (
    None
):
    table = losing(flipping(5, 20, n=2000, ability=0.85), 2, 200, range(12, 20), 0.1)
    reports = followed(records(table, subsets=10), POLICY)
    assert [r.step for r in reports if any(v.subset for v in r.findings)] == [1500, 1600]
    drops = {r.step: e.drop for r in reports for e in r.incidents if e.subset}
    newest = {step: drop.newest_steps[-1] for step, drop in drops.items() if drop is not None}
    assert newest == {step: step for step in range(1500, 2100, 100)}


@pytest.mark.parametrize("seed", range(3))
def test_healthy_subjects_are_silent(seed: int) -> None:
    assert found(followed(records(flipping(seed, 20, n=1000), subsets=10), POLICY)) == []


def test_a_benchmark_with_subsets_gives_them_half_of_its_level() -> None:
    table = flipping(0, 4, n=200)
    one, many = (followed(records(table, subsets=k), POLICY)[-1].verdicts[0].alpha_test for k in (1, 10))
    assert many == pytest.approx(one / 2)


# --- answers


def lengths(seed: int, shape: tuple[int, int], factor: float | FloatArray = 1.0, since: int = 0) -> FloatArray:
    """Tokens; `factor` of all samples or of each, from checkpoint `since` on."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(40, 120, shape[1])
    tokens = base * rng.uniform(0.8, 1.2, shape)
    tokens[since:] *= factor
    return np.minimum(tokens, LONGEST)


def test_wrong_answers_that_get_longer_are_a_finding_and_the_score_is_not() -> None:
    table = np.tile(flipping(1, 1, n=300), (20, 1))
    longer = np.where(table[0] > 0, 1.0, 2.5)
    reports = followed(records(table, tokens=lengths(1, table.shape, longer, since=14)), POLICY)
    assert next(r.step for r in reports if r.findings) in (1500, 1600)
    assert {(v.measure, v.word) for v in found(reports)} == {(Measure.OUTPUT_LENGTH, VerdictWord.REGRESSED)}
    (incident,) = changes_of(reports)
    assert (incident.measure, incident.subset) == (Measure.OUTPUT_LENGTH, "")
    first = found(reports)[0]
    assert first.score is not None
    assert first.score > 0.2  # as a share of the longest answer allowed
    assert reason_text(first).startswith("share of the token limit 0.306 at step 1400 -> 0.5")
    assert "lost" not in reason_text(first)


@pytest.mark.parametrize(
    ("right", "wrong", "lost", "measures"),
    [
        (2.0, 2.0, 0, set()),
        (2.0, 1.0, 0, set()),
        (1.5, 2.0, 0, set()),
        (1.1, 2.5, 0, {Measure.OUTPUT_LENGTH}),
        (1.0, 2.5, 12, {Measure.OUTPUT_LENGTH}),
        (1.0, 1.0, 12, set()),
    ],
    ids=["all", "right", "right a bit less", "right much less", "wrong and lost", "none"],
)
def test_longer_right_answers_are_no_finding(right: float, wrong: float, lost: int, measures: set[Measure]) -> None:
    table = np.tile(flipping(1, 1, n=300), (18, 1))
    table[14:, np.flatnonzero(table[0])[:lost]] = 0.0
    tokens = lengths(1, table.shape, np.where(table[-1] > 0, right, wrong), since=14)
    assert {v.measure for v in found(followed(records(table, tokens=tokens), POLICY))} == measures


@pytest.mark.parametrize(("right", "findings"), [(0, 1), (9, 1), (10, 0)])
def test_longer_answers_are_a_finding_where_too_few_are_right_to_show_anything(right: int, findings: int) -> None:
    table = np.zeros((18, 300))
    table[:, :right] = 1.0
    reports = followed(records(table, tokens=lengths(1, table.shape, 2.0, since=14)), POLICY)
    assert len(reports[-1].findings) == findings


def test_longer_answers_that_score_better_are_no_finding() -> None:
    table = np.tile(flipping(1, 1, n=300), (20, 1))
    table[14:, :250] = 1.0
    reports = followed(records(table, tokens=lengths(1, table.shape, 2.0, since=14)), POLICY)
    assert reports[14].verdicts[0].word is VerdictWord.IMPROVED
    assert found(reports[14:16]) == []


def test_a_finding_on_longer_answers_is_explained_when_the_score_improves() -> None:
    """First the answers get longer, then they score better: their length is the new normal from then on."""
    table = np.tile(flipping(1, 1, n=300), (22, 1))
    wrong = np.where(table[0] > 0, 1.0, 2.5)
    table[16:, :250] = 1.0
    reports = followed(records(table, tokens=lengths(1, table.shape, wrong, since=13)), POLICY)
    opened, ended = changes_of(reports)
    assert (opened.measure, opened.onset_step, opened.closed_by) == (Measure.OUTPUT_LENGTH, 1400, None)
    improved = next(r.step for r in reports if r.verdicts[0].word is VerdictWord.IMPROVED)
    assert (ended.opened_step, ended.closed_step, ended.closed_by) == (opened.opened_step, improved, Closing.EXPLAINED)
    assert [r.step for r in reports if r.findings] == list(range(opened.opened_step, improved, 100))


def test_answers_that_get_shorter_are_no_finding() -> None:
    table = np.tile(flipping(1, 1, n=300), (20, 1))
    assert found(followed(records(table, tokens=lengths(1, table.shape, 0.4, since=14)), POLICY)) == []


def test_answers_that_are_cut_off_are_a_finding() -> None:
    table = np.tile(flipping(2, 1, n=300), (20, 1))
    cut = np.zeros(table.shape)
    cut[12:, :60] = 1.0
    reports = followed(records(table, truncated=cut), POLICY)
    losses = found(reports)
    assert {(v.measure, v.word) for v in losses} == {(Measure.COMPLETENESS, VerdictWord.REGRESSED)}
    assert losses[0].score == pytest.approx(0.2)
    assert reason_text(losses[0]).startswith("share of truncated answers 0.000 at step 1200 -> 0.20")


@pytest.mark.parametrize("seed", range(3))
def test_healthy_answers_are_silent(seed: int) -> None:
    table = flipping(seed, 20, n=300)
    cut = (np.random.default_rng(seed).random(table.shape) < 0.01).astype(float)
    assert found(followed(records(table, tokens=lengths(seed, table.shape), truncated=cut), POLICY)) == []


def test_answers_of_unknown_length_say_nothing() -> None:
    assert found(followed(run_of(*[140] * 8), POLICY)) == []


def test_a_finding_that_comes_late_opens_nothing() -> None:
    table = losing(flipping(4, 20, n=2000, ability=0.85), 2, 200, range(14, 18), 0.4)
    run = records(table, subsets=10)
    late = run.pop(17)
    reports = followed([*run, late], POLICY)
    assert reports[-1].step == 1800
    assert reports[-1].incidents == ()
