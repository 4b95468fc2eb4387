"""The training step of a result: given by the user, or taken from file names or from the model's name. Pure."""

import re
from collections.abc import Iterable

from eval_jobs.errors import BadData
from tracker.domain.imports.types import Given

_STEP = re.compile(
    r"(?<![a-z])(?:checkpoint|ckpt|global_?step|step|iteration|iter)[-_]?([0-9]{1,18})(?![0-9])", re.IGNORECASE
)


def step_of_result(given: Given, models: Iterable[str] = ()) -> int:
    """Return the step of a result: of the nearest name of its file that contains one, or of `models` in the file.

    A name in `models` may be of the form `pretrained=org/model,revision=step3000`.

    Raises:
        BadData: no step is found, or two names contain different ones.
    """
    if given.step is not None:
        return given.step
    named = next((steps for name in given.names if (steps := _steps_in(name))), frozenset[int]())
    inside = frozenset(step for model in models for step in _steps_in(model))
    if not named | inside:
        raise BadData(
            f"{given.source}: cannot determine the training step",
            hint="set --step, or put step1000 or checkpoint-1000 into the name of the file or its folder",
        )
    if len(named | inside) > 1:
        found = " and ".join(str(step) for step in sorted(named | inside))
        raise BadData(f"{given.source}: path and model name contain different steps: {found}", hint="set --step")
    (step,) = named | inside
    return step


def model_name_without_step(name: str) -> str:
    """Return the name of a model without its step; empty if nothing else is left."""
    return _STEP.sub("", name).strip("-_. ")


def weights_name(model: str) -> str:
    """Return what names the weights in a model's name or path, without its step; empty if nothing does."""
    parts = (model_name_without_step(part) for part in model.split("/"))
    return next((part for part in reversed(tuple(parts)) if part), "")


def _steps_in(text: str) -> frozenset[int]:
    return frozenset(int(found) for found in _STEP.findall(text))
