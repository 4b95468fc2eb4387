"""Progress over several benchmarks that run at the same time. Pure."""

from collections.abc import Sequence

from eval_jobs.evaluate.common.protocol import Message
from eval_jobs.records.progress import Progress, Stage


class SampleCounts:
    """Number of finished samples, over all benchmarks of one evaluation."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts: dict[str, tuple[int, int]] = {}

    @property
    def loading(self) -> Progress:
        """Progress before the first request."""
        return Progress(stage=Stage.EVALUATING, benchmarks=self._names, note="loading")

    def after(self, message: Message) -> Progress:
        """Return the progress after a message of one benchmark; benchmarks not loaded yet are not counted."""
        self._counts[message["benchmark"]] = (message["done"], message["total"])
        done, total = map(sum, zip(*self._counts.values(), strict=True))
        return Progress(stage=Stage.EVALUATING, benchmarks=self._names, done=done, total=total)
