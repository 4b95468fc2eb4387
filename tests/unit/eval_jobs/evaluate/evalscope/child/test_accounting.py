"""Whatever lies in the files of an evaluation: every planned sample comes out once, and a failure has no score."""

import math
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eval_jobs.evaluate.common.parse import Planned, by_place, parse_samples
from eval_jobs.run import check_accounted
from eval_jobs.types import EvalResult, SampleStatus

COUNT = 6
JUNK = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2))
STOPS = st.one_of(st.sampled_from(["stop", "max_tokens", "tool_calls", "model_length", "content_filter"]), JUNK)
SCORES = st.one_of(st.floats(), JUNK)
STATUSES = st.one_of(st.sampled_from(["success", "degraded", "excluded", None]), JUNK)


@st.composite
def predictions(draw: st.DrawFn) -> dict[str, Any]:
    choices: Any = [{"message": draw(st.one_of(JUNK, st.just({"content": "4"}))), "stop_reason": draw(STOPS)}]
    output = draw(st.one_of(JUNK, st.just({"choices": choices}), st.just({"choices": draw(JUNK)})))
    return {"index": draw(st.integers(-1, COUNT)), "model_output": output}


@st.composite
def reviews(draw: st.DrawFn) -> dict[str, Any]:
    score = {"value": draw(st.one_of(JUNK, st.just({"acc": draw(SCORES)}))), "status": draw(STATUSES)}
    score |= draw(st.sampled_from([{}, {"main_score_name": "acc"}, {"metadata": {"metric_errors": ["x"]}}]))
    return {"index": draw(st.integers(-1, COUNT)), "sample_score": draw(st.one_of(JUNK, st.just({"score": score})))}


@given(
    answered=st.lists(predictions(), max_size=10),
    reviewed=st.lists(reviews(), max_size=10),
    failed=st.dictionaries(st.integers(0, COUNT), st.text(max_size=5)),
    repeats=st.sampled_from([1, 2, 3]),
)
def test_scored_truncated_unscored_and_error_add_up_to_what_was_planned(
    answered: list[dict[str, Any]], reviewed: list[dict[str, Any]], failed: dict[int, str], repeats: int
) -> None:
    planned = [
        Planned(subset="s", index=i, repeat=i % repeats, messages=(("user", f"{i // repeats % 2}"),), target="4")
        for i in range(COUNT)
    ]
    samples = parse_samples(
        planned, by_place("s", answered), by_place("s", reviewed), {("s", i): text for i, text in failed.items()}
    )
    counts = Counter(sample.status for sample in samples)
    assert sum(counts[status] for status in SampleStatus) == len(planned) == len(samples)
    for sample in samples:
        has_score = sample.status in (SampleStatus.SCORED, SampleStatus.TRUNCATED)
        assert (sample.score is not None) is has_score
        assert sample.score is None or math.isfinite(sample.score)
        assert has_score or sample.status is SampleStatus.UNSCORED or sample.answer == ""
        assert sample.detail or sample.status is SampleStatus.SCORED
    check_accounted(EvalResult(benchmark="b", fingerprint="f", metric="acc", samples=samples, duration_s=0.0))
