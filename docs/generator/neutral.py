"""The reference of settings that cannot change a score, from the list that the program uses."""

from __future__ import annotations

from collections.abc import Iterable

from eval_jobs.neutral_settings import NEUTRAL

HEAD = """# Settings that change no score

If only these differ, results stay in one series, and `tracker compare` and reports name what differs. Everything else
counts: dtype, quantization, length limits, chat template, seed, sampling, and each argument that is not listed here.

| settings | reason | in `tracker.toml` | in `serve.args` of vLLM and SGLang |
|---|---|---|---|
"""


def neutral_page() -> str:
    """Return docs/reference/neutral-settings.md."""
    rows: list[str] = []
    for group in NEUTRAL:
        arguments = _code(f"--{name}" for name in group.arguments)
        rows.append(f"| {group.what} | {group.reason} | {_code(group.settings)} | {arguments} |")
    return HEAD + "\n".join(rows) + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
