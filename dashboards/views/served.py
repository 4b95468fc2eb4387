"""How one checkpoint was served, and its cost: a record -> (name, value) pairs. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from eval_jobs.types import EngineInfo, EvalRecord
from tracker.domain.records.display import count_text, duration_text, one_line, tokens_text
from tracker.domain.records.imported import is_imported

DIGEST_CHARS = 12

_LOADED = {
    "cold": "cold start of the engine",
    "swap": "swapped into the running engine",
    "adapter": "adapter loaded next to its base model",
    "remote": "served by a remote endpoint",
    "imported": "imported results",
}


@dataclass(frozen=True, kw_only=True)
class ServedView:
    """(name, value) pairs."""

    facts: tuple[tuple[str, str], ...]
    """Engine, how the weights were loaded, and the device."""
    costs: tuple[tuple[str, str], ...]
    """Cost of the evaluation by part; empty if unknown."""


def served(record: EvalRecord) -> ServedView:
    """Return how a checkpoint was served, and what its evaluation cost."""
    return ServedView(facts=tuple(_served(record)), costs=tuple(_costs(record)))


def _served(record: EvalRecord) -> Iterator[tuple[str, str]]:
    engine = record.engine
    if engine is None:
        yield ("Engine", "failed to start")
        return
    yield ("Engine", f"{one_line(engine.name)} {one_line(engine.version)}".strip())
    yield ("Weights", _weights(engine))
    if engine.certificate:
        short = one_line(engine.certificate)[:DIGEST_CHARS]
        yield ("Certificate", f"{short}: answers bit-identical to those of a cold start")
    if engine.canaries:
        asked = count_text(len(engine.canaries), "fixed prompt")
        yield ("Output check", f"{asked}, answers stored with the result")
    if engine.device:
        gpus = f", {count_text(engine.gpus, 'GPU')}" if engine.gpus else ""
        yield ("Device", f"{one_line(engine.device)}{gpus}")
    yield ("Checkpoint", f"{record.plan.checkpoint.format}, digest {one_line(record.plan.checkpoint.digest)}")


def _weights(engine: EngineInfo) -> str:
    how = _LOADED.get(engine.load_method, one_line(engine.load_method))
    took = f" in {duration_text(engine.load_s)}" if engine.load_s else ""
    return f"{how}{took}{f': {one_line(engine.load_reason)}' if engine.load_reason else ''}"


def _costs(record: EvalRecord) -> Iterator[tuple[str, str]]:
    cost = record.cost
    if cost is None or is_imported(record):
        return
    yield ("Total", duration_text(cost.wall_s))
    yield ("Loading", duration_text(cost.loading_s))
    yield ("Scoring", duration_text(cost.evaluating_s))
    yield ("Latency test", duration_text(cost.probing_s))
    if cost.input_tokens is not None or cost.output_tokens is not None:
        yield ("Tokens", f"{tokens_text(cost.input_tokens)} input, {tokens_text(cost.output_tokens)} output")
    if cost.gpu_s is not None:
        yield ("GPU time", duration_text(cost.gpu_s))
    if cost.cpu_s is not None:
        yield ("Engine CPU time", duration_text(cost.cpu_s))
