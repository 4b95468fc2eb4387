"""What all tables of tracker.toml have in common."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails


class Dataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Record = TypeVar("Record", bound=Dataclass)
Value = TypeVar("Value")

_KEY_IN_QUERY = re.compile(r"(^|&)[^=&]*(key|token|secret|password)[^=&]*=", re.IGNORECASE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(name: str) -> str:
    """Return a name as it stands between the dots of a table's head, in quotes where TOML asks for them."""
    if _BARE_KEY.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=False)


def without_key(url: str, *, instead: str) -> str:
    """Return the address if it holds no key: it is stored with every plan, logged and shown.

    Args:
        url: any address.
        instead: where a key belongs.

    Raises:
        ValueError: there is a password or a key in it; the message does not repeat it.
    """
    address, _, query = url.partition("?")
    scheme, _, rest = address.partition("://")
    user, separator, _ = rest.partition("/")[0].rpartition("@")
    # A database is asked for as somebody; over HTTP a user's name alone may be a token.
    has_key = ":" in user or (bool(separator) and scheme.startswith("http"))
    if has_key or _KEY_IN_QUERY.search(query):
        raise ValueError(f"it contains a key or password: remove it ({instead}) and rotate the exposed credential")
    return url


def folder_of(info: ValidationInfo) -> Path:
    """Return the folder of the file, which relative paths in it start from; it is the context of the validation."""
    return info.context or Path()


def anchored(path: Path | str, info: ValidationInfo) -> Path:
    """Return an absolute path without `..`; symbolic links stay where there is none."""
    found = folder_of(info) / path
    if ".." in found.parts:
        return found.resolve()
    return found


AnchoredPath = Annotated[Path, AfterValidator(anchored)]
"""A path that may be relative to the file."""


def named_twice(names: Iterable[str]) -> str | None:
    """Return the first name, in the order of letters, that is there more than once."""
    counted = Counter(names)
    return min((name for name in counted if counted[name] > 1), default=None)


def checked_with(problems: Iterable[str], value: object, validate: Callable[[object], Value]) -> Value:
    """Return what a validator makes of a value: `problems` of the whole value do not hide those of its parts.

    Raises:
        ValidationError: there are any; all are named at once.
    """
    errors = [InitErrorDetails(type="value_error", input=None, ctx={"error": ValueError(text)}) for text in problems]
    try:
        found = validate(value)
    except ValidationError as error:
        parts = [
            InitErrorDetails(type=part["type"], loc=part["loc"], input=part["input"], ctx=part.get("ctx", {}))
            for part in error.errors()
        ]
        raise ValidationError.from_exception_data(error.title, [*parts, *errors]) from error
    if errors:
        raise ValidationError.from_exception_data("value", errors)
    return found


class Section(BaseModel, frozen=True, extra="forbid", hide_input_in_errors=True):
    """A table of the file: frozen, unknown keys are refused, and no error shows a value: it may be a secret.

    A setting that a record holds too is declared there alone: a table has the dataclass of such settings as a second
    base. What people read of it is the text below it.
    """

    leading: ClassVar[tuple[str, ...]] = ()
    """Settings that are listed before those of the record."""

    @classmethod
    def listed(cls) -> tuple[str, ...]:
        """Return the names of the settings in the order in which people read them."""
        return tuple(dict.fromkeys((*cls.leading, *cls.model_fields)))


def record_of(kind: type[Record], section: Section, **others: object) -> Record:
    """Return a record with the settings that the section shares with it, and `others`."""
    shared = {f.name for f in fields(kind)} & type(section).model_fields.keys() - others.keys()
    return kind(**{name: getattr(section, name) for name in shared}, **others)
