"""All changed samples of a page, as its script gets them."""

from collections import Counter
from dataclasses import replace

import pytest

from dashboards.data.checkpoint import CheckpointData
from dashboards.views.checkpoint import build_checkpoint_view
from dashboards.views.run import build_view
from dashboards.views.samples import packed as module
from dashboards.views.samples.packed import MAX_CHARS, PageSamples
from eval_jobs.types import EvalRecord, EvalResult, SampleScore, SampleStatus
from tests.records import forgetting_run
from tests.reports import checkpoint_data, run_data, shown_samples, unpacked

RUN = forgetting_run()


def _with(step: int, **fields: object) -> CheckpointData:
    """Return the data of step 1000, with fields of every sample at one step replaced."""

    def changed(record: EvalRecord) -> EvalRecord:
        if record.plan.checkpoint.step != step:
            return record
        outcomes = tuple(
            replace(o, samples=tuple(map(_replaced, o.samples))) if isinstance(o, EvalResult) else o
            for o in record.outcomes
        )
        return replace(record, outcomes=outcomes)

    def _replaced(sample: SampleScore) -> SampleScore:
        return replace(sample, **fields)  # type: ignore[arg-type]

    return checkpoint_data(replace(RUN, records=tuple(map(changed, RUN.records))), 1000)


def _packed(data: CheckpointData) -> PageSamples:
    packed = build_checkpoint_view(data).changes.packed
    assert packed is not None
    return packed


def test_both_pages_hold_every_changed_sample_of_every_verdict() -> None:
    run = build_view(run_data(RUN)).forgetting.samples
    assert run is not None
    assert (run.lost, run.gained, run.left_out) == (123, 2, 0)
    checkpoint = Counter((name, kind) for name, kind, _, _ in shown_samples(_packed(checkpoint_data(RUN, 1000))))
    expected = {
        ("facts, step 600 to 1000", "lost"): 70,
        ("sums, step 600 to 1000", "lost"): 53,
        ("reversal, step 900 to 1000", "gained"): 2,
    }
    assert Counter((name, kind) for name, kind, _, _ in shown_samples(run)) == expected
    assert expected.items() <= checkpoint.items()


def test_a_sample_has_both_answers_whole_and_how_they_came_to_be() -> None:
    packed = _packed(
        _with(600, answer="word " * 3000, status=SampleStatus.TRUNCATED, output_tokens=3000, answer_ms=2100)
    )
    group = unpacked(packed.index)["groups"][0]
    assert group["settings"] == "greedy, top_p 1, at most 16 tokens, seed 0"
    assert group["facts"][1] == "evaluated 2026-03-14 09:17 UTC, vllm 0.32.1"
    found = [fields for name, _, _, fields in shown_samples(packed) if name == "facts, step 600 to 1000"]
    _, prompt, target, *sides = found[0]
    assert (prompt, target) == ("What colour is the robepu?", "red")
    assert sides == [
        "✓ Correct at step 600",
        ("word " * 3000).strip(),
        "score 1.000, 3000 output tokens, 2.1 s, finish reason length (max_tokens)",
        "✗ Incorrect at step 1000",
        "upebor",
        "score 0.000, 4 output tokens, finish reason stop",
    ]


def test_texts_are_cleaned_and_cut_only_where_they_are_very_long() -> None:
    hostile, long, empty = ("\ud83d\x1b[2J\u202e", "x" * 10 * MAX_CHARS, "")
    for answer, shown in ((hostile, "\ufffd\ufffd[2J\ufffd"), (long, "characters omitted"), (empty, "(empty answer)")):
        fields = next(shown_samples(_packed(_with(1000, answer=answer))))[3]
        assert shown in fields[7]
        assert len(fields[7]) < 1.01 * MAX_CHARS


def test_a_subset_is_known_before_a_block_is_decoded() -> None:
    assert unpacked(_packed(_with(1000, subset="hard")).index)["subsets"] == ["hard"]


def test_samples_beyond_the_largest_size_of_a_file_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _packed(checkpoint_data(RUN, 1000))
    monkeypatch.setattr(module, "MAX_BYTES", sum(map(len, whole.blocks)) // 2)
    part = _packed(checkpoint_data(RUN, 1000))
    assert part.left_out > 0
    assert part.lost + part.gained + part.left_out == whole.lost + whole.gained
    assert sum(1 for _ in shown_samples(part)) == part.lost + part.gained


def test_a_page_without_a_changed_sample_has_no_script() -> None:
    assert build_checkpoint_view(checkpoint_data(RUN, 100)).changes.packed is None
