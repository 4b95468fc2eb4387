"""Threads that benchmarks share: whose turn it is, that none idles, and how one stops without the others."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TypeVar

import pytest

from eval_jobs.evaluate.asking.shared_pool import SharedPool

T = TypeVar("T")
R = TypeVar("R")


@pytest.fixture
def pool() -> Iterator[SharedPool]:
    with SharedPool(4) as pool:
        yield pool


def all_of(pool: SharedPool, items: Sequence[T], work: Callable[[T], R], *, cost: float = 1) -> dict[T, Future[R]]:
    with pool.each(items, work, cost=cost) as ended:
        return dict(ended)


def test_every_item_comes_back_once_with_what_became_of_it(pool: SharedPool) -> None:
    ended = all_of(pool, range(20), lambda item: item * 2)
    assert {item: outcome.result() for item, outcome in ended.items()} == {item: item * 2 for item in range(20)}
    assert all_of(pool, [], str) == {}


def test_what_the_work_raises_is_that_items_outcome_and_the_others_go_on(pool: SharedPool) -> None:
    ended = all_of(pool, [1, 0, 2], lambda item: 1 / item)
    assert [type(ended[item].exception()) for item in (1, 0, 2)] == [type(None), ZeroDivisionError, type(None)]


def test_the_items_that_cost_most_are_begun_first_and_the_order_decides_among_equals() -> None:
    begun: list[str] = []
    may_begin = threading.Event()

    def work(item: str) -> None:
        may_begin.wait(timeout=60)
        begun.append(item)

    with SharedPool(1) as pool, ExitStack() as stack:
        groups = [(9, ["first"]), (1, ["cheap a", "cheap b"]), (5, ["dear a", "dear b"]), (1, ["late"])]
        ended = [stack.enter_context(pool.each(items, work, cost=cost)) for cost, items in groups]
        may_begin.set()
        assert sum(len(list(one)) for one in ended) == 6
    assert begun == ["first", "dear a", "dear b", "cheap a", "cheap b", "late"]


def test_no_thread_idles_while_any_benchmark_has_items_left(pool: SharedPool) -> None:
    """Each of four items waits for the three others: two benchmarks with two items each can only end together."""
    together = threading.Barrier(4, timeout=60)
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(pool.each(pair, lambda _: together.wait(), cost=1)) for pair in ([0, 1], [2, 3])
        )
        assert sorted(outcome.result() for _, outcome in (*one, *two)) == [0, 1, 2, 3]


def test_stopping_one_benchmark_drops_what_is_not_begun_waits_for_what_is_and_leaves_the_others_alone() -> None:
    begun: list[int] = []
    may_end, has_begun = threading.Event(), threading.Event()

    def work(item: int) -> int:
        begun.append(item)
        if item == 1:
            has_begun.set()
            may_end.wait(timeout=60)
        return item

    with SharedPool(1) as pool:
        with pool.each(range(100), work, cost=1) as ended:
            next(ended)
            assert has_begun.wait(timeout=60)
            threading.Timer(0.05, may_end.set).start()
        assert may_end.is_set(), "what was begun has ended"
        assert all_of(pool, [200], work)[200].result() == 200
    assert begun == [0, 1, 200]


def test_its_threads_end_with_it() -> None:
    before = threading.active_count()
    with SharedPool(8):
        assert threading.active_count() == before + 8
    assert threading.active_count() == before
