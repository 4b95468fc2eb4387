"""What differs between two configurations, setting by setting. Pure."""

import json
import re
from collections.abc import Iterator

from eval_jobs.host.secrets import MASK, is_secret
from tracker.config import Config


def setting_changes(old: Config, new: Config) -> Iterator[tuple[str, str, str]]:
    """Yield name, old and new value of each setting, or whole table, that differs. What may be a secret is masked."""
    yield from _differences("", old.model_dump(mode="json"), new.model_dump(mode="json"))


def _differences(name: str, old: object, new: object) -> Iterator[tuple[str, str, str]]:
    before, after = _by_name(old), _by_name(new)
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from _differences(f"{name}.{key}" if name else key, before.get(key), after.get(key))
    elif before != after:
        yield name, _shown(name, before), _shown(name, after)


def _by_name(value: object) -> object:
    """Return several tables by their own names, or their positions."""
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return {str(one.get("name") or one.get("benchmark") or place): one for place, one in enumerate(value)}
    return value


def _shown(name: str, value: object) -> str:
    if isinstance(value, dict):
        value = {key: one for key, one in value.items() if one}
    text = "none" if value is None else json.dumps(value, ensure_ascii=False)
    return MASK if is_secret(re.sub(r"\W+", "_", f"{name} {text}")) else text
