import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from eval_jobs.execute.interrupts import STOP_SIGNALS, WAKE_SIGNAL, Interrupts, LeaseLost, Stopped
from eval_jobs.queue_types import Claim
from tests.records import forgetting_run

PLAN = forgetting_run(checkpoints=1, samples=2).records[0].plan


def claim(attempt: int = 1) -> Claim:
    return Claim(plan=PLAN, worker="a", attempt=attempt, lease_until=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    handlers = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, WAKE_SIGNAL)}
    made = Interrupts()
    made.install()
    yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_stop_signal_interrupts_where_that_is_allowed(interrupts: Interrupts, number: signal.Signals) -> None:
    with pytest.raises(Stopped), interrupts.allowed():
        signal.raise_signal(number)


def test_a_signal_at_any_other_place_waits_for_the_next_one_that_allows_it(interrupts: Interrupts) -> None:
    signal.raise_signal(signal.SIGTERM)
    reached = False
    with pytest.raises(Stopped), interrupts.allowed():
        reached = True
    assert not reached


def test_cleaning_up_after_a_stop_is_not_interrupted_again(interrupts: Interrupts) -> None:
    cleaned_up = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned_up.append(1)

    with pytest.raises(Stopped), interrupts.allowed():
        work()
    assert cleaned_up


def test_a_lost_claim_wakes_the_main_thread_out_of_a_wait(interrupts: Interrupts) -> None:
    held = claim()
    timer = threading.Timer(0.1, lambda: interrupts.lose(held))
    timer.start()
    with pytest.raises(LeaseLost), interrupts.allowed(held):
        threading.Event().wait(60)
    timer.join()


def test_a_claim_that_was_lost_before_is_noticed_at_once(interrupts: Interrupts) -> None:
    held = claim()
    interrupts.lose(held)
    with pytest.raises(LeaseLost), interrupts.allowed(held):
        pass


def test_a_lost_claim_does_not_concern_the_next_one(interrupts: Interrupts) -> None:
    interrupts.lose(claim(attempt=1))
    with interrupts.allowed(claim(attempt=1)):  # equal in value, and still another claim
        pass
    with interrupts.allowed():
        pass


def test_another_thread_can_ask_to_stop(interrupts: Interrupts) -> None:
    timer = threading.Timer(0.1, interrupts.stop_from_thread)
    timer.start()
    with pytest.raises(Stopped), interrupts.allowed():
        threading.Event().wait(60)
    timer.join()
