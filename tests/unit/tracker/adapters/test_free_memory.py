import ctypes

import psutil
import pytest

from eval_jobs.host.memory import give_back


@pytest.mark.slow
def test_freed_memory_goes_back_to_the_machine() -> None:
    kept = [bytes(2000) for _ in range(50_000)]
    ends = [bytes(2000) for _ in range(10)]  # above the others on the heap
    full = psutil.Process().memory_info().rss
    del kept
    give_back()
    assert psutil.Process().memory_info().rss < full - 50_000_000
    assert len(ends) == 10


@pytest.mark.slow
def test_a_c_library_without_that_call_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    give_back()
