"""Versions of vLLM that were run with the tracker. Pure."""

from packaging.version import InvalidVersion, Version

TESTED_VLLM = ("0.27", "0.33")
"""First and last minor version."""


def why_untested(version: str) -> str:
    """Return in a sentence that vLLM `version`, as it reports it, was not tested; "" if it was."""
    first, last = TESTED_VLLM
    try:
        minor = Version(version).release[:2]
    except InvalidVersion:
        return f"the version of vLLM is unknown (tested: {first} to {last})"
    if Version(first).release <= minor <= Version(last).release:
        return ""
    age = "older" if minor < Version(first).release else "newer"
    return f"vLLM {version} is {age} than the tested versions ({first} to {last})"
