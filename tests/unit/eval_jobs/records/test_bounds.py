from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from eval_jobs.records.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class Settings:
    count: Annotated[int, Bounds(gt=0)] = 1
    share: Annotated[float | None, Bounds(ge=0, le=1)] = None


def test_values_within_their_bounds_are_taken_and_none_is_where_it_may_be() -> None:
    read = TypeAdapter(Settings).validate_python({"count": 3, "share": None})
    assert read == Settings(count=3, share=None)
    assert TypeAdapter(Settings).validate_python({"share": 1}) == Settings(share=1.0)


def test_values_beyond_their_bounds_are_refused_by_name() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Settings).validate_python({"count": 0, "share": 1.5})
    assert [(e["loc"], e["type"]) for e in refused.value.errors()] == [
        (("count",), "greater_than"),
        (("share",), "less_than_equal"),
    ]
