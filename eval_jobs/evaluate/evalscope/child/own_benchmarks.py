"""EvalScope adapters of the tracker's own benchmarks. Only the evaluator's child imports this."""

from collections.abc import Mapping
from typing import Any

from evalscope.api import registry
from evalscope.api.benchmark import BenchmarkMeta, DefaultDataAdapter, MultiChoiceAdapter
from evalscope.api.dataset import DatasetDict, Sample
from evalscope.api.evaluator import TaskState
from evalscope.api.metric import Score
from evalscope.utils.multi_choices import MultipleChoiceTemplate
from typing_extensions import override

from eval_jobs.evaluate.common.task_config import OWN_NAMES
from eval_jobs.evaluate.evalscope.child.scoring import chosen_letter, exact_score


def register_own() -> None:
    """Register the adapters with EvalScope; call once per process."""
    registry.register_benchmark(_own_meta("exact", "{question}"))(Exact)
    registry.register_benchmark(_own_meta("choice", MultipleChoiceTemplate.SINGLE_ANSWER))(Choice)


class _LocalData(DefaultDataAdapter):  # type: ignore[misc]
    def load_from_disk(self, **_: object) -> tuple[DatasetDict, None]:
        """Read `<subset>_test.jsonl` as `dataset_cache` writes it."""
        loaded: tuple[DatasetDict, None] = super().load_from_disk(use_local_loader=True)
        return loaded


class Exact(_LocalData):
    """A question and its answer, scored by `scoring.exact_score`."""

    def record_to_sample(self, record: Mapping[str, Any]) -> Sample:
        """Read one row of the copy."""
        targets = record["targets"]
        return Sample(
            input=record["question"],
            target=targets[0] if len(targets) == 1 else targets,
            metadata={"cluster": record["cluster"], "id": record["id"], "targets": targets},
        )

    @override
    def match_score(
        self, original_prediction: str, filtered_prediction: str, reference: str, task_state: TaskState
    ) -> Score:
        """Compare with the accepted answers."""
        value = exact_score(filtered_prediction, task_state.metadata["targets"])
        return _score(value, original_prediction, filtered_prediction)


class Choice(_LocalData, MultiChoiceAdapter):  # type: ignore[misc]
    """A question with choices, answered by a letter, read by `scoring.chosen_letter`."""

    def record_to_sample(self, record: Mapping[str, Any]) -> Sample:
        """Read one row of the copy."""
        return Sample(
            input=record["question"],
            choices=record["choices"],
            target=record["targets"][0],
            metadata={"cluster": record["cluster"], "id": record["id"]},
        )

    def extract_answer(self, prediction: str, task_state: TaskState) -> str:
        """Return the chosen letter."""
        return chosen_letter(prediction, len(task_state.choices))

    @override
    def match_score(
        self, original_prediction: str, filtered_prediction: str, reference: str, task_state: TaskState
    ) -> Score:
        """Compare the letters."""
        return _score(float(filtered_prediction == reference), original_prediction, filtered_prediction)


def _score(value: float, prediction: str, extracted: str) -> Score:
    return Score(value={"acc": value}, main_score_name="acc", prediction=prediction, extracted_prediction=extracted)


def _own_meta(name: str, prompt_template: str) -> BenchmarkMeta:
    return BenchmarkMeta(
        name=OWN_NAMES[name],
        pretty_name=name,
        dataset_id=name,
        description=name,
        metric_list=["acc"],
        eval_split="test",
        prompt_template=prompt_template,
    )
