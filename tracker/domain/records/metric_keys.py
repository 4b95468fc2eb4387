"""Names of benchmarks and loads -> metric keys that MLflow accepts. Pure.

    keys = unique_keys(["pass@1", "acc,none"])      # {"pass@1": "pass_at_1", "acc,none": "acc_none"}

MLflow accepts word characters, `- . : / ` and the space, and rejects what a file system would resolve to another path.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from eval_jobs.identity import content_hash

MAX_KEY_CHARS = 150
"""MLflow accepts 250 for the whole key; the rest is for the prefix and for the suffix that keeps keys unique."""

_HASH_CHARS = 6
_REFUSED = re.compile(r"[^\w\-. ]+")


def metric_key(name: str) -> str:
    """Return `name` with everything that MLflow rejects replaced; two names may give the same key."""
    # A slash would open a section in the charts, and MLflow on Windows rejects a colon.
    key = _REFUSED.sub("_", name.replace("@", "_at_")).strip(" ")
    if not key.strip("."):
        key = "_" * max(1, len(key))  # `.` and `..` are folders
    if len(key) > MAX_KEY_CHARS:
        key = f"{key[:MAX_KEY_CHARS]}-{_mark(name)}"
    return key


def unique_keys(names: Iterable[str], key_of: Callable[[str], str] = metric_key) -> dict[str, str]:
    """Return a unique key for each name; names whose keys would be equal get a suffix derived from the name.

    The suffix depends on the name alone, not on the order. A name that is its own key keeps it.
    """
    by_key: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        by_key[key_of(name)].append(name)
    return {
        name: key if len(same) == 1 or name == key else f"{key}-{_mark(name)}"
        for key, same in by_key.items()
        for name in same
    }


def _mark(name: str) -> str:
    return content_hash(name)[:_HASH_CHARS]
