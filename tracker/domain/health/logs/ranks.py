"""Who printed a line: the prefixes that launchers and loggers put before the text of each rank. Pure."""

import re

_BRACKETED = r"\[(?:rank|default) ?(?P<named>\d+)\]:"
_BARE = r"(?P<bare>\d+): "
_RANK = re.compile(rf"^\s*(?:{_BRACKETED}|{_BARE})", re.IGNORECASE)
_PRINTER = re.compile(rf"{_BRACKETED} ?|{_BARE}|\(\w+ pid=\d+[^)]*\) ?|", re.IGNORECASE)
_ANY = re.compile(r"^(?:\[[^\]]*\]:?\s*|\d[\d:.,TZ+/-]*+(?:\s+|$))+")
"""Ranks and times."""
_WITHIN = re.compile(r"(?<!^)(?=\[rank\d+\]:)")


def printed_rank(line: str) -> int | None:
    """Return the rank in the prefix of a line, as torchrun, Megatron and srun -l write it."""
    found = _RANK.match(line)
    return None if found is None else int(found["named"] or found["bare"])


def printer_of(line: str) -> str:
    """Return the prefix of the process that printed a line, Ray's too; empty: it has none."""
    found = _PRINTER.match(line)
    return "" if found is None else found[0]


def without_rank_and_time(text: str) -> str:
    """Return a text without the ranks and times before it."""
    return _ANY.sub("", text)


def parts_of_ranks(text: str) -> list[str]:
    """Return what each rank printed into one line: several write to a file at once. An object is never taken apart."""
    if "[rank" not in text or text.startswith("{"):
        return [text]
    return _WITHIN.split(text)
