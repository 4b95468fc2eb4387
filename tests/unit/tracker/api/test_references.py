import pytest

from eval_jobs.errors import ConfigError
from tracker.api.references import choose_run


def test_the_projects_own_run_is_the_default() -> None:
    assert choose_run(("a", "b"), None, own="b") == "b"
    assert choose_run(("a", "b"), "a", own="b") == "a"
    assert choose_run(("a",), None, own="b") == "a"


def test_the_last_part_of_a_name_is_enough_if_one_run_has_it() -> None:
    assert choose_run(("p/seed-1", "p/seed-2"), "seed-2", own="p") == "p/seed-2"
    with pytest.raises(ConfigError, match="no run 'seed-1'"):
        choose_run(("p/seed-1", "q/seed-1"), "seed-1", own="p")


@pytest.mark.parametrize(
    ("known", "named", "message"),
    [
        ((), None, "no evaluated checkpoints yet"),
        ((), "a", "no evaluated checkpoints yet"),
        (("a", "b"), "c", "no run 'c'"),
        (("a", "b"), None, "the project has several runs"),
    ],
)
def test_a_run_that_cannot_be_chosen_is_an_error_that_lists_the_runs(
    known: tuple[str, ...], named: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        choose_run(known, named, own="own")
    assert all(run in caught.value.hint for run in known)
