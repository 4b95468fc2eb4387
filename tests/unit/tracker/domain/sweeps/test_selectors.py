from dataclasses import replace
from datetime import timedelta

import pytest

from eval_jobs.types import Checkpoint
from tests.records import forgetting_run
from tracker.domain.sweeps.selectors import newest_of_steps, parse_selector, selected_checkpoints
from tracker.domain.sweeps.types import Pick

HELD = tuple(record.plan.checkpoint for record in forgetting_run(checkpoints=7, samples=2, trouble=False).records)


def steps(text: str, held: tuple[Checkpoint, ...] = HELD) -> list[int]:
    return [c.step for c in selected_checkpoints(parse_selector(text), newest_of_steps(held))]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("latest", [700]),
        ("latest:3", [500, 600, 700]),
        ("latest:99", [100, 200, 300, 400, 500, 600, 700]),
        ("first", [100]),
        ("first:2", [100, 200]),
        ("all", [100, 200, 300, 400, 500, 600, 700]),
        ("every:3", [100, 400, 700]),
        ("300", [300]),
        ("301", []),
    ],
)
def test_a_selector_names_checkpoints_by_step(text: str, found: list[int]) -> None:
    assert steps(text) == found
    assert steps(text, HELD[::-1]) == found
    assert steps(text, ()) == []


def test_what_every_so_many_th_names_stays_named_as_the_run_grows() -> None:
    chosen_early = steps("every:3", HELD[:4])
    assert steps("every:3")[: len(chosen_early)] == chosen_early


def test_a_selector_may_name_another_run_the_best_of_a_benchmark_and_a_version_of_the_registry() -> None:
    one = parse_selector("exp/lr@2@latest:3")
    assert (one.run, one.pick, one.number) == ("exp/lr@2", Pick.LATEST, 3)
    best = parse_selector("other@best:pass@1")
    assert (best.run, best.pick, best.benchmark) == ("other", Pick.BEST, "pass@1")
    assert parse_selector("best").pick is Pick.BEST
    assert parse_selector("models:/sft@champion").pick is Pick.REGISTERED


@pytest.mark.parametrize(
    "text",
    ["", "newest", "latest:", "latest:0", "latest:-1", "latest:x", "all:3", "@latest", "step", "every:1.5", "-7"],
)
def test_what_names_no_checkpoints_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid checkpoint selector"):
        parse_selector(text)


def test_what_training_left_behind_is_not_chosen_and_a_step_that_was_written_again_counts_as_it_is_now() -> None:
    later = HELD[-1].ready_at + timedelta(hours=1)
    again = replace(HELD[4], digest="f" * 32, ready_at=later)
    held = (*HELD, again)
    assert steps("all", held) == [100, 200, 300, 400, 500]
    assert newest_of_steps(held)[-1] == again
