"""Counts the samples of several benchmarks that run at the same time. Pure."""

from collections.abc import Sequence

from eval_jobs.evaluate.common.protocol import Message
from eval_jobs.records.progress import Progress, Stage


class SampleCounts:
    """How many samples of all benchmarks of one evaluation are done."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts: dict[str, tuple[int, int]] = {}

    @property
    def loading(self) -> Progress:
        """Nothing is asked yet."""
        return Progress(stage=Stage.EVALUATING, benchmarks=self._names, note="loading")

    def after(self, message: Message) -> Progress:
        """Return how far they are after a message of one of them; what has not been loaded yet is not counted."""
        self._counts[message["benchmark"]] = (message["done"], message["total"])
        done, total = map(sum, zip(*self._counts.values(), strict=True))
        return Progress(stage=Stage.EVALUATING, benchmarks=self._names, done=done, total=total)
