"""Why two checkpoints alone may say something else than the run."""

from dataclasses import replace

from tests.unit.tracker.domain.judging import followed, run_of
from tests.unit.tracker.domain.verdicts.test_incidents import noisy
from tracker.domain.compare.beside_run import differences_from_run, with_run
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.records.display import signed_text
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import reason_text
from tracker.domain.records.types import WORSE

POLICY = Policy(planned_checkpoints=20, alpha=1e-12)


def test_a_loss_that_only_several_checkpoints_show_is_named_beside_the_pair_that_does_not() -> None:
    run = noisy(*[0.9] * 12, *[0.8] * 8)
    newest = followed(run, Policy(planned_checkpoints=20))[-1]
    (verdict,) = newest.verdicts
    assert verdict.word in WORSE
    view = with_run(compare_parts([(run[3], run[-1])], POLICY, RunNoise()), newest)
    assert view.benchmarks[0].word not in WORSE, "at this level"
    (line,) = differences_from_run(view)
    assert line.startswith(f"sums: {verdict.word} in the run, {reason_text(verdict)}. The run tests ")
    assert line.endswith(f"; these two checkpoints alone are {view.benchmarks[0].word}")


def test_equal_verdicts_and_a_checkpoint_of_another_run_need_no_words() -> None:
    run = run_of(*[180] * 6, *[60] * 4)
    view = compare_parts([(run[4], run[9])], Policy(), RunNoise())
    newest = followed(run, Policy(planned_checkpoints=20))[-1]
    assert [verdict.word in WORSE for verdict in with_run(view, newest).run] == [True]
    assert list(differences_from_run(with_run(view, newest))) == []
    of_another = compare_parts([(run[5], run[9])], Policy(), RunNoise())
    assert with_run(of_another, replace(newest, run_id="other")).run == ()


def test_the_interval_of_a_loss_stands_beside_that_of_its_pair() -> None:
    run = run_of(*[180] * 6, *[60] * 4)
    newest = followed(run, Policy(planned_checkpoints=20))[-1]
    view = with_run(compare_parts([(run[5], run[9])], Policy(), RunNoise()), newest)
    drop = newest.verdicts[0].drop
    assert drop is not None
    interval = f"95 % CI {signed_text(drop.ci_low)} to {signed_text(drop.ci_high)}"
    assert list(differences_from_run(view)) == [
        f"sums: {interval} in the run, which estimates the noise from all its checkpoints"
    ]
