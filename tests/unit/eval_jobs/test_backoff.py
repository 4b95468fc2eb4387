from datetime import UTC, datetime

import pytest

from eval_jobs.backoff import Backoff, retry_after_s

NOW = datetime(2026, 2, 1, 13, 0, tzinfo=UTC)


def test_waiting_grows_to_its_limit_and_never_below_what_was_asked_for() -> None:
    backoff = Backoff(first_s=5.0, longest_s=300.0)
    assert [backoff.wait_s(failures) for failures in (1, 2, 3, 7, 10_000)] == [5.0, 10.0, 20.0, 300.0, 300.0]
    assert (backoff.wait_s(1, 600.0), backoff.wait_s(2, 1.0)) == (600.0, 10.0)
    assert Backoff(first_s=10.0, factor=3.0).wait_s(3) == 90.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("17", 17.0),
        ("1.5", 1.5),
        ("Sun, 01 Feb 2026 13:01:30 GMT", 90.0),
        ("Sun, 01 Feb 2026 12:00:00 GMT", 0.0),
        ("99999999999", 86400.0),
        ("", None),
        ("-5", None),
        ("inf", None),
        ("soon", None),
        ("\u0661\u0667", None),
    ],
)
def test_the_time_to_wait_is_read_in_both_notations(header: str, seconds: float | None) -> None:
    assert retry_after_s(header, NOW, longest_s=86400.0) == seconds
