"""Replaces what looks like a key in a line of a log: its text goes to pages and messages. Pure."""

import re

MASK = "***"

_KEYS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{12,}|xox[abp]-[\w-]{10,}"
    r"|glpat-[\w-]{16,}|AIza[\w-]{30,}|github_pat_\w{16,}|nvapi-[\w-]{16,}|eyJ[\w-]{6,}\.eyJ[\w-]{6,}\.[\w-]*"
    r"|(?<=\bkey )[0-9a-f]{40}\b)"
)
"""Of Hugging Face, OpenAI, GitHub, AWS, Slack, GitLab, Google and NVIDIA, JSON web tokens, and those of W&B."""
_NAMED = re.compile(
    r"((?:(?:api|access|wandb)[-_]?key|token|secret|passw(?:or)?d|authorization)"
    r"(?:[\"']?\s*[=:]\s*(?:(?:bearer|basic)\s+)?[\"']?|(?<=-token)\s+|(?<=-key)\s+|(?<=-password)\s+))"
    r"([^\s\"',;]{6,})",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(://[^\s/:@]+:)[^\s/@]+(?=@)")


def without_keys(text: str) -> str:
    """Return a text with `***` in place of keys, by their form and by the names before them."""
    text = _IN_ADDRESS.sub(rf"\1{MASK}", _KEYS.sub(MASK, text))
    return _NAMED.sub(rf"\1{MASK}", text)
