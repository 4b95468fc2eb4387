"""Progress over several benchmarks that run at the same time. Pure."""

from collections.abc import Sequence

from eval_jobs.evaluate.common.protocol import Message
from eval_jobs.records.progress import BenchmarkCount, Progress, Stage


class SampleCounts:
    """Number of finished samples, over all benchmarks of one evaluation."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts: dict[str, BenchmarkCount] = {}

    @property
    def loading(self) -> Progress:
        """Progress before the first request."""
        return Progress(stage=Stage.EVALUATING, benchmarks=self._names, note="loading")

    def after(self, message: Message) -> Progress:
        """Return the progress after a message of one benchmark; benchmarks not loaded yet are not counted."""
        count = BenchmarkCount(benchmark=message["benchmark"], done=message["done"], total=message["total"])
        self._counts[count.benchmark] = count
        counts = tuple(self._counts[name] for name in self._names if name in self._counts)
        return Progress(
            stage=Stage.EVALUATING,
            benchmarks=self._names,
            done=sum(one.done for one in counts),
            total=sum(one.total for one in counts),
            counts=counts,
        )
