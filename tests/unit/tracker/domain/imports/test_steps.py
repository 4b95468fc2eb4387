import pytest

from eval_jobs.errors import BadData
from tests.imported import given
from tracker.domain.imports.steps import step_of_result


def test_the_nearest_name_says_the_step_a_person_counts_more_and_a_model_less() -> None:
    names = {
        "160m_step63000.json": 63000,
        "checkpoint-500": 500,
        "ckpt_12": 12,
        "global_step7": 7,
        "iter-0000010": 10,
        "Step 5 of the plan, step5": 5,
    }
    assert {name: step_of_result(given(name)) for name in names} == names
    assert step_of_result(given("results.json", "checkpoint-20", "step-1-of-the-plan")) == 20
    assert step_of_result(given("step1.json", step=9), ["revision=step3"]) == 9
    assert step_of_result(given("results.json"), ["org/model", "step3000"]) == 3000


def test_a_name_and_a_model_that_differ_are_refused() -> None:
    with pytest.raises(BadData, match="different steps: 1 and 3"):
        step_of_result(given("step1.json"), ["step3"])


@pytest.mark.parametrize("name", ["results_2026-03-01.json", "misstep7.json", "160m.json", ""])
def test_a_number_alone_is_no_step(name: str) -> None:
    with pytest.raises(BadData, match="cannot determine the training step"):
        step_of_result(given(name))
