"""Rules that have one home: nobody else decides them."""

import re

import pytest

from tests.requires import PROJECT

FILES = sorted(path for package in ("eval_jobs", "tracker", "dashboards") for path in (PROJECT / package).rglob("*.py"))

RULES = {
    "whether a disk is full": (r"ENOSPC|EDQUOT|EFBIG|errno (==|in) \(?[0-9]", {"eval_jobs/host/storage.py"}),
    "who process N is": (r"/stat\b.*read|\"stat\"|boot_id\"|ns/pid", {"eval_jobs/host/proc.py"}),
    "exit codes": (r"sys\.exit\([0-9]|exit_code = [0-9]", set()),
    "exponential waiting": (r"(?i)(_s|[0-9]\.[0-9]) \* \S+ ?\*\* ?(min|\(|[a-z])", {"eval_jobs/backoff.py"}),
    "documents with a version": (
        r"\[?\"schema_version\"",
        {"eval_jobs/codec.py", "tracker/adapters/alerts/channels/webhook.py", "tracker/cli/json_output.py"},
    ),
    "how a server on this machine is asked": (r"http\.client\.HTTPConnection", {"eval_jobs/host/local_http.py"}),
    "what is called suspect": (r"(return|=) VerdictWord\.SUSPECT", {"tracker/domain/scores/suspicion.py"}),
}
"""What shows that a file decides it, and the files that may."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_decided_in_its_home_only(rule: str) -> None:
    pattern, homes = RULES[rule]
    found = {str(path.relative_to(PROJECT)) for path in FILES if re.search(pattern, path.read_text(encoding="utf-8"))}
    assert found == homes
