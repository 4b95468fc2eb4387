"""The log of a worker holds no key, and does not control the terminal in which it is read."""

import logging
import sys

import pytest

from eval_jobs.execute.child import MaskingFormatter


def test_a_line_is_one_line_without_keys_and_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "canary" + "-4711"
    monkeypatch.setenv("GATEWAY_KEY", key)
    try:
        raise ValueError(f"refused {key} \x1b]0;owned\x07")
    except ValueError:
        found = sys.exc_info()
    record = logging.LogRecord("tests", logging.ERROR, "", 1, "%s\nERROR: lost\x1b[2J", (key,), found)
    first, *rest = MaskingFormatter("%(levelname)s: %(message)s").format(record).splitlines()
    assert first == "ERROR: *** ERROR: lost\ufffd[2J"
    assert rest[-1] == "ValueError: refused *** \ufffd]0;owned\ufffd"
