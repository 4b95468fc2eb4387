from __future__ import annotations

from eval_jobs.evaluate.evalscope.progress_line import ProgressLine
from eval_jobs.queue.rules import answered_in


def progress(name: str, done: int, total: int) -> dict[str, object]:
    return {"type": "progress", "benchmark": name, "done": done, "total": total}


def test_one_benchmark_is_shown_by_its_name() -> None:
    line = ProgressLine(["sums"])
    assert line.loading == "sums: loading"
    assert line.after(progress("sums", 3, 20)) == "sums 3/20"


def test_several_are_counted_together_from_the_moment_that_each_is_loaded() -> None:
    line = ProgressLine(["sums", "facts"])
    assert line.after(progress("sums", 3, 20)) == "sums, facts 3/20"
    assert line.after(progress("facts", 0, 10)) == "sums, facts 3/30"
    assert line.after(progress("sums", 20, 20)) == "sums, facts 20/30"


def test_many_are_shown_by_their_number() -> None:
    line = ProgressLine([f"benchmark {n}" for n in range(12)])
    assert line.loading == "12 benchmarks: loading"
    assert ProgressLine(["a" * 100]).loading == f"{'a' * 100}: loading", "one has no better name"


def test_a_workers_claim_reads_one_count_from_it_under_one_name() -> None:
    """Whether a plan gets anywhere between two crashes is told by it."""
    line = ProgressLine(["sums", "facts"])
    notes = [line.after(progress("sums", 3, 20)), line.after(progress("facts", 4, 10))]
    assert [answered_in(note) for note in notes] == [("sums, facts", 3), ("sums, facts", 7)]
