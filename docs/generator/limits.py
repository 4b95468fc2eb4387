"""The reference of limits on what others write and answer, from the records that the program uses."""

from __future__ import annotations

from eval_jobs import limits
from eval_jobs.host.bounded.json_text import amount
from eval_jobs.limits import Limit

HEAD = """# Limits

The tracker reads what a trainer, a data set, an endpoint or a store sends up to a limit. Each is far above what
real runs need; none can be set. Texts of others are cut to {chars:,} characters where they are stored.

| what | at most | beyond it |
|---|---|---|
"""


def limits_page() -> str:
    """Return docs/reference/limits.md."""
    found = [limit for limit in vars(limits).values() if isinstance(limit, Limit)]
    rows = [f"| {limit.subject} | {amount(limit)} | {limit.beyond} |" for limit in found]
    return HEAD.format(chars=limits.KEPT_CHARS) + "\n".join(rows) + "\n"
