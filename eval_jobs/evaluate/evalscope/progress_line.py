"""One line for several benchmarks that run at the same time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from eval_jobs.evaluate.common.protocol import Message

MAX_NAMES_CHARS = 60


class ProgressLine:
    """`sums, facts 45/100`: how many samples of all benchmarks of one evaluation are done."""

    def __init__(self, names: Sequence[str]) -> None:
        title = ", ".join(names)
        self._title = title if len(title) <= MAX_NAMES_CHARS or len(names) == 1 else f"{len(names)} benchmarks"
        self._counts: dict[str, tuple[int, int]] = {}

    @property
    def loading(self) -> str:
        """Say that nothing is asked yet."""
        return f"{self._title}: loading"

    def after(self, message: Message) -> str:
        """Say how far they are after a message of one of them; what has not been loaded yet is not counted."""
        self._counts[message["benchmark"]] = (message["done"], message["total"])
        done, total = map(sum, zip(*self._counts.values(), strict=True))
        return f"{self._title} {done}/{total}"
