"""Work that may hang is given up, and everything else is as if it had been called."""

import threading

import pytest

from tracker.adapters.alerts.sending.target import within


def test_what_hangs_is_given_up() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.05, never.wait)
    never.set()


def test_a_result_and_an_error_come_as_they_are() -> None:
    def breaks() -> int:
        raise KeyError("x")

    assert within(30.0, lambda: 7) == 7
    with pytest.raises(KeyError, match="x"):
        within(30.0, breaks)


def test_it_is_no_matter_in_which_thread_or_loop_it_is_called() -> None:
    names: list[str] = []
    within(30.0, lambda: within(30.0, lambda: names.append(threading.current_thread().name)))
    assert names == ["alert channel"]
