"""What differs between two configurations, setting by setting. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from eval_jobs.host.secrets import MASK, is_secret
from tracker.config.measuring import OWN_ADAPTERS


def setting_changes(old: object, new: object, name: str = "") -> Iterator[Mapping[str, str]]:
    """Yield subject, before and after of each setting that differs in two dumps; what may be a secret is masked."""
    before, after = _by_name(old), _by_name(new)
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from setting_changes(before.get(key), after.get(key), f"{name}.{key}" if name else key)
    elif before != after:
        yield {"subject": name, "before": _shown(name, before), "after": _shown(name, after)}


def _by_name(value: object) -> object:
    """Return several tables by their own names, or their positions."""
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return {_name_of(one) or str(place): one for place, one in enumerate(value)}
    return value


def _name_of(table: Mapping[str, object]) -> str:
    """Return what a table is called: a benchmark of the user's without a name is called like its data."""
    own = Path(str(table["data"])).stem if table.get("benchmark") in OWN_ADAPTERS and table.get("data") else ""
    return str(table.get("name") or own or table.get("benchmark") or "")


def _shown(name: str, value: object) -> str:
    if value is None or isinstance(value, dict):
        return "{…}" if value else "not set"
    text = json.dumps(value, ensure_ascii=False)
    return MASK if is_secret(re.sub(r"\W+", "_", f"{name} {text}")) else text
