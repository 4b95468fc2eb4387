import pytest

from eval_jobs.errors import BadData
from tests.imported import given
from tracker.domain.imports.steps import step_of_result


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("160m_step63000.json", 63000),
        ("checkpoint-500", 500),
        ("ckpt_12", 12),
        ("global_step7", 7),
        ("iter-0000010", 10),
        ("Step 5 of the plan, step5", 5),
    ],
)
def test_names_say_the_step(name: str, step: int) -> None:
    assert step_of_result(given(name)) == step


def test_the_nearest_name_counts() -> None:
    assert step_of_result(given("results.json", "checkpoint-20", "step-1-of-the-plan")) == 20


def test_what_a_person_says_counts_more_than_any_name() -> None:
    assert step_of_result(given("step1.json", step=9), ["revision=step3"]) == 9


def test_the_model_says_it_where_no_name_does() -> None:
    assert step_of_result(given("results.json"), ["org/model", "step3000"]) == 3000


def test_a_name_and_a_model_that_differ_are_refused() -> None:
    with pytest.raises(BadData, match="say the steps 1 and 3"):
        step_of_result(given("step1.json"), ["step3"])


@pytest.mark.parametrize("name", ["results_2026-03-01.json", "misstep7.json", "160m.json", ""])
def test_a_number_alone_is_no_step(name: str) -> None:
    with pytest.raises(BadData, match="nothing says which step"):
        step_of_result(given(name))
