from eval_jobs.evaluate.evalscope.evaluator import SampleCounts
from eval_jobs.records.progress import progress_text


def message(name: str, done: int, total: int) -> dict[str, object]:
    return {"type": "progress", "benchmark": name, "done": done, "total": total}


def test_several_are_counted_together_from_the_moment_that_each_is_loaded() -> None:
    counts = SampleCounts(["sums", "facts"])
    assert progress_text(counts.loading) == "sums, facts: loading"
    assert counts.loading.answered is None
    shown = [counts.after(message(*one)) for one in (("sums", 3, 20), ("facts", 0, 10), ("sums", 20, 20))]
    assert [progress_text(one) for one in shown] == ["sums, facts 3/20", "sums, facts 3/30", "sums, facts 20/30"]
    assert [one.answered for one in shown] == [3, 3, 20]
    assert [(one.benchmark, one.done, one.total) for one in shown[-1].counts] == [("sums", 20, 20), ("facts", 0, 10)]
