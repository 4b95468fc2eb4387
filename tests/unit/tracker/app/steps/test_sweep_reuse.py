"""What the run's own evaluation has answered is taken from there by a sweep, and nothing that could differ is."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from eval_jobs.queue.rules import lease_end
from eval_jobs.types import SampleStatus
from tests.sweeping import LOADS, NOW, RECORDED, answered, sweep_of
from tests.unit.tracker.app.steps.test_sweeps import RUN, TWO, Bench, followed
from tracker.app.steps.sweeps import take_sweep_result
from tracker.domain.sweeps.types import TurnState


def evaluated(bench: Bench) -> Bench:
    """The run has evaluated its checkpoints itself, at temperature 0."""
    for record in RECORDED.records:
        bench.history.append(record)
    return bench


def test_what_the_run_itself_has_answered_is_taken_from_there_and_published() -> None:
    bench = evaluated(Bench(sweep_of()))
    (begun,) = followed(bench, NOW, TWO)
    assert bench.asked() == [f"{RUN}@{step} {{'temperature': '0.7'}}" for step in (300, 400)]
    followed(bench, TWO + timedelta(minutes=1))
    assert bench.states() == [TurnState.DONE]
    results = bench.store.results([plan.id for plan in begun.plans])
    own = results[begun.plans[0].id]
    assert [scores_of(o) for o in own.outcomes] == [scores_of(o) for o in RECORDED.records[2].outcomes]
    assert own.plan == begun.plans[0]
    bench.tracking.flush()
    assert {r.plan.id for r in bench.tracking.sweeps} == {plan.id for plan in begun.plans}


def scores_of(outcome: Any) -> list[tuple[str, float | None]]:
    return [(sample.sample_id, sample.score) for sample in outcome.samples]


def test_loads_are_put_on_a_checkpoint_also_where_its_scores_are_known() -> None:
    bench = evaluated(Bench(sweep_of(axes={}, loads=LOADS, checkpoints=("400",))))
    (begun,) = followed(bench, NOW, TWO)
    claim = bench.queue.claim(worker="w", now=TWO, lease_until=lease_end(TWO))
    assert claim is not None
    assert (claim.plan.suite.benchmarks, claim.plan.loads) == ((), LOADS)
    bench.queue.finish(claim, answered(claim.plan), now=TWO)
    for _ in range(2):  # the second time as after a failure, when the turn has ended
        take_sweep_result(answered(claim.plan), bench.service())
        followed(bench, TWO + timedelta(minutes=1))
        (kept,) = bench.store.results([begun.plans[0].id]).values()
        assert kept.plan == begun.plans[0]
        assert [o.benchmark for o in kept.outcomes] == [b.name for b in begun.plans[0].suite.benchmarks]
        assert len(kept.probes) == len(LOADS)
    assert bench.states() == [TurnState.DONE]


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, plan=replace(r.plan, checkpoint=replace(r.plan.checkpoint, digest="other"))),
        lambda r: replace(r, plan=replace(r.plan, checkpoint=replace(r.plan.checkpoint, files_digest="other"))),
        lambda r: replace(r, plan=replace(r.plan, serve=replace(r.plan.serve, dtype="float16"))),
        lambda r: replace(r, plan=replace(r.plan, calibration=1)),
        lambda r: replace(r, outcomes=r.outcomes[1:]),
        lambda r: replace(r, outcomes=tuple(replace(o, fingerprint="other") for o in r.outcomes)),
        lambda r: replace(r, outcomes=tuple(replace(o, left_out=3) for o in r.outcomes)),
        lambda r: replace(r, outcomes=tuple(with_errors(o) for o in r.outcomes)),
    ],
)
def test_what_could_have_another_score_is_asked(change: Callable[[Any], Any]) -> None:
    bench = Bench(sweep_of(axes={}, checkpoints=("400",)))
    for record in RECORDED.records:
        bench.history.append(change(record))
    followed(bench, NOW, TWO)
    assert len(bench.asked()) == 1


def with_errors(outcome: Any) -> Any:
    broken = replace(outcome.samples[0], score=None, status=SampleStatus.ERROR)
    return replace(outcome, samples=(broken, *outcome.samples[1:]))


def test_who_asks_again_asks_also_what_the_run_has_answered() -> None:
    bench = evaluated(Bench(sweep_of(again=True, axes={})))
    followed(bench, NOW, TWO)
    assert len(bench.asked()) == 2
