"""What a budget keeps: the last ones of every run, and whatever has a reason of its own."""

from hypothesis import given
from hypothesis import strategies as st

from tests.records import forgetting_run, scores_of_run
from tracker.domain.best.choice import best_of
from tracker.domain.best.retention import (
    BEST_OF_SUITE,
    Identity,
    best_checkpoints,
    decide_retention,
    identity_of,
    merged,
)
from tracker.domain.scores.run_scores import RunScores

checkpoints = st.builds(
    Identity,
    run_id=st.sampled_from(["a", "b"]),
    step=st.integers(min_value=0, max_value=9),
    digest=st.sampled_from(["x", "y"]),
)


def of(step: int, run_id: str = "a", digest: str = "x") -> Identity:
    return Identity(run_id=run_id, step=step, digest=digest)


def kept(choices: object) -> list[int]:
    return [c.checkpoint.step for c in choices if c.reasons]  # type: ignore[attr-defined]


def test_the_last_steps_of_every_run_are_kept() -> None:
    every = [of(step, run) for step in (100, 200, 300) for run in ("a", "b")]
    choices = decide_retention(every, keep=1, reasons={})
    assert [(c.checkpoint.run_id, c.checkpoint.step) for c in choices if c.reasons] == [("a", 300), ("b", 300)]
    assert choices[-1].reasons == ("among the newest 1",)


def test_without_a_budget_all_are_kept() -> None:
    assert kept(decide_retention([of(1), of(2)], keep=None, reasons={})) == [1, 2]


def test_both_contents_of_a_step_that_was_written_again_count_as_one() -> None:
    choices = decide_retention([of(1), of(2, digest="x"), of(2, digest="y")], keep=1, reasons={})
    assert kept(choices) == [2, 2]


def test_a_reason_of_its_own_keeps_an_old_one_and_is_told() -> None:
    choices = decide_retention([of(1), of(2), of(3)], keep=1, reasons={of(1): ("first of the run",)})
    assert [c.reasons for c in choices] == [("first of the run",), (), ("among the newest 1",)]


@given(st.lists(checkpoints, max_size=30), st.integers(min_value=1, max_value=5), st.sets(checkpoints, max_size=5))
def test_every_checkpoint_is_decided_once_and_nothing_with_a_reason_goes(
    found: list[Identity], keep: int, protected: set[Identity]
) -> None:
    choices = decide_retention(found, keep=keep, reasons=dict.fromkeys(protected, ("mine",)))
    assert sorted(c.checkpoint.step for c in choices) == sorted(c.step for c in set(found))
    goes = {c.checkpoint for c in choices if not c.reasons}
    assert not goes & protected
    for checkpoint in goes:
        later = {c.step for c in found if c.run_id == checkpoint.run_id and c.step > checkpoint.step}
        assert len(later) >= keep


def test_the_best_checkpoint_of_every_benchmark_is_named_and_that_of_the_run() -> None:
    scores = scores_of_run(forgetting_run(trouble=False))
    best = best_checkpoints(scores)
    each = {name: best_of(scores, name) for name in scores.benchmarks()}
    assert len({one.checkpoint.step for one in each.values() if one}) > 1, "what is learned late is best late"
    for name, one in each.items():
        assert one is not None
        assert any(name in reason for reason in best[identity_of(one.checkpoint)])
    whole = best_of(scores)
    assert whole is not None
    assert BEST_OF_SUITE in best[identity_of(whole.checkpoint)]


def test_a_run_without_scores_has_no_best() -> None:
    assert best_checkpoints(RunScores(run_id="a")) == {}


def test_reasons_are_merged_in_order_each_once() -> None:
    assert merged({of(1): ("a",)}, {of(1): ("b", "a"), of(2): ("c",)}) == {of(1): ("a", "b"), of(2): ("c",)}
