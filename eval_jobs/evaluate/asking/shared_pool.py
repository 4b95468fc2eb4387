"""Threads shared by several benchmarks, so that no thread idles while another benchmark ends.

    with SharedPool(12) as pool:
        with pool.each(samples, ask, cost=256) as ended:     # from a thread of each benchmark
            for sample, outcome in ended: ...

A free thread takes the next item of the group with the highest cost per item, the earliest group among equals: long
answers begin early and short ones fill the end. All slots of the server are in use until fewer questions are left.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def n_threads(concurrency: int) -> int:
    """Return how many threads keep `concurrency` requests in flight while others score and write."""
    return concurrency + max(2, concurrency // 2)


class SharedPool:
    """A pool of threads. Thread-safe. Leaving its context ends the threads; it must not be in use then."""

    def __init__(self, n_threads: int) -> None:
        self._changed = threading.Condition()
        self._groups: list[_Group[Any, Any]] = []
        """Groups with items that are not begun, highest cost first."""
        self._is_closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True, name=f"asks {i}") for i in range(n_threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @contextmanager
    def each(
        self, items: Sequence[T], work: Callable[[T], R], *, cost: float
    ) -> Iterator[Iterator[tuple[T, Future[R]]]]:
        """Run `work` on every item, and yield each item and its outcome as it ends.

        When the context is left early, items that are not begun are dropped, and running ones are waited for.

        Args:
            items: begun in this order.
            work: runs in a thread of the pool; its exception is in the outcome.
            cost: cost of one item, in the same unit for all users of the pool.
        """
        group = _Group(cost=cost, items=deque(items), work=work)
        with self._changed:
            self._groups = sorted([*self._groups, group], key=lambda g: -g.cost)
            self._changed.notify_all()
        try:
            yield (group.ended.get() for _ in items)
        finally:
            with self._changed:
                group.items.clear()
                self._changed.wait_for(lambda: group.n_running == 0)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            group, item = taken
            outcome: Future[Any] = Future()
            try:
                outcome.set_result(group.work(item))
            except BaseException as error:  # noqa: BLE001 - it goes to whoever asked for this
                outcome.set_exception(error)
            group.ended.put((item, outcome))
            with self._changed:
                group.n_running -= 1
                if not group.n_running:
                    self._changed.notify_all()

    def _take(self) -> tuple[_Group[Any, Any], Any] | None:
        with self._changed:
            while not self._is_closed:
                self._groups = [group for group in self._groups if group.items]
                if self._groups:
                    group = self._groups[0]
                    group.n_running += 1
                    return group, group.items.popleft()
                self._changed.wait()
        return None


@dataclass
class _Group(Generic[T, R]):
    cost: float
    items: deque[T]
    work: Callable[[T], R]
    n_running: int = 0
    ended: SimpleQueue[tuple[T, Future[R]]] = field(default_factory=SimpleQueue)
