import pytest

from eval_jobs.errors import ConfigError
from tracker.api.references import choose_run


def test_the_projects_own_run_is_the_default() -> None:
    assert choose_run(("a", "b"), None, own="b") == "b"
    assert choose_run(("a", "b"), "a", own="b") == "a"
    assert choose_run(("a",), None, own="b") == "a"


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
