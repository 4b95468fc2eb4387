"""Known benchmark names, read from EvalScope's package files without importing it: its import takes seconds."""

import ast
import difflib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eval_jobs.errors import EvaluateError, UnknownBenchmark

EXACT = "exact"
CHOICE = "choice"
OWN_ADAPTERS = (EXACT, CHOICE)

CODE_FAMILIES = (
    *("automation_bench", "bfcl", "bird_sql", "claw_eval", "deep_swe", "skillsbench", "swe_bench", "terminal_bench"),
    "data_collection",  # may include any of the others
)
"""Benchmarks that execute model output although their card in EvalScope does not declare it; other cards do."""


def check_name(adapter: str) -> None:
    """Check that a benchmark exists and may run here.

    Raises:
        UnknownBenchmark: no benchmark of that name; the hint lists similar names.
        EvaluateError: it executes code that the model wrote.
    """
    if runs_code(adapter):
        raise code_refusal(adapter)
    names = evalscope_names()
    if adapter in OWN_ADAPTERS or adapter in names or not names:
        return
    near = difflib.get_close_matches(adapter.lower(), [*OWN_ADAPTERS, *sorted(names)], n=3, cutoff=0.5)
    guess = f"did you mean {' or '.join(f'`{n}`' for n in near)}? " if near else ""
    raise UnknownBenchmark(
        f"unknown benchmark `{adapter}`",
        hint=f"{guess}use `exact` or `choice` with a JSONL file, or one of the {len(names)} EvalScope benchmarks",
    )


@cache
def evalscope_names() -> frozenset[str]:
    """Return the names of EvalScope's benchmarks; empty if it is not installed in this environment."""
    return frozenset(_document("_index.json"))


def runs_code(adapter: str) -> bool:
    """Return whether this EvalScope benchmark executes model output: to score it, or as an agent's commands."""
    name = adapter.lower()
    card = _card(name)
    return bool(card.get("sandbox_config") or card.get("agent_config")) or name.startswith(CODE_FAMILIES)


def code_refusal(adapter: str) -> EvaluateError:
    """Return the error for a benchmark that executes model output; docs/decisions/0022 has the reasons."""
    return EvaluateError(
        f"benchmark `{adapter}` executes model-generated code",
        hint="remove it: that code would run as your user, and EvalScope's sandbox scores its own failures as wrong "
        'answers (see "Security" in the documentation)',
    )


def subsets_of(adapter: str) -> tuple[str, ...]:
    """Return the subsets that EvalScope declares for one of its benchmarks; () if unknown."""
    return tuple(_card(adapter).get("subset_list", ()))


def dataset_of(adapter: str) -> str:
    """Return the name of an EvalScope benchmark's data set on the hubs; "" if unknown."""
    return str(_card(adapter).get("dataset_id", ""))


def few_shot_of(adapter: str) -> tuple[int, str]:
    """Return the default number of few-shot examples of an EvalScope benchmark, and their split."""
    card = _card(adapter)
    return int(card.get("few_shot_num") or 0), str(card.get("train_split") or "")


@cache
def choice_template() -> str:
    """Return EvalScope's prompt for a question with choices, from its source: importing it takes seconds."""
    source = _package_file("utils/multi_choices.py")
    if source is not None:
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SINGLE_ANSWER_TEMPLATE":
                return next(str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant)).strip()
    return "{question} {choices} {letters}"


@cache
def _card(adapter: str) -> dict[str, Any]:
    meta: dict[str, Any] = _document(f"_meta/{adapter}.json").get("meta", {})
    return meta


def _document(name: str) -> dict[str, Any]:
    """Return a JSON file in EvalScope's folder of benchmarks; {} if there is none, as without EvalScope."""
    path = _package_file(f"benchmarks/{name}")
    if path is None:
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _package_file(name: str) -> Path | None:
    """Return a file of EvalScope without importing it; None if there is none."""
    spec = find_spec("evalscope")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / name
    return path if path.is_file() else None
