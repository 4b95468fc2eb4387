"""A loop that continues after unexpected errors."""

import logging

import pytest

from eval_jobs.host.unforeseen import Edge


def test_an_edge_goes_on_after_any_error_and_logs_equal_ones_once(caplog: pytest.LogCaptureFixture) -> None:
    edge = Edge(logging.getLogger("edge"), "cannot look", then="retrying")
    done = []
    for text in ("a", "a", "b", "a"):
        with edge.guarded():
            done.append(text)
            raise ZeroDivisionError(text)
    with pytest.raises(KeyboardInterrupt), edge.guarded():
        raise KeyboardInterrupt
    assert done == ["a", "a", "b", "a"]
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"cannot look: ZeroDivisionError: {text} (retrying); please report this bug" for text in ("a", "b")]
