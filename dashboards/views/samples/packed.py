"""All lost and gained samples of a page, packed for its script (`templates/samples.js`). Pure.

Index and blocks are JSON, deflated, in base64. The script decodes the index first, and a block when one of its samples
is shown or searched:

    index   {"groups": [{"name", "facts": [before, after], "settings"}], "subsets": [name],
             "blocks": [[group, 0 (lost) or 1 (gained), [subset of each sample]]]}
    block   [[id, prompt, target, heading, answer, facts, heading, answer, facts]], the answer before and the one after
"""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dashboards.views.samples.changes import Pair, heading_at
from dashboards.views.samples.texts import NOT_KEPT
from eval_jobs.types import SampleStatus
from tracker.domain.compare.examples import Example
from tracker.domain.compare.view import Side
from tracker.domain.records.display import clean, count_text, duration_text, one_line, score_text, shortened

MAX_BYTES = 30_000_000
"""Maximum size of all blocks, which a browser opens in a second."""
MAX_CHARS = 20_000
"""Maximum characters of a prompt, target or answer."""
_PER_BLOCK = 64
_CHARS_PER_BLOCK = 250_000

_Sample = tuple[str, ...]
_Block = tuple[int, int, list[_Sample], list[str]]
"""Group, 0 (lost) or 1 (gained), samples and their subsets."""


@dataclass(frozen=True, kw_only=True)
class PageSamples:
    """The changed samples of a page."""

    index: str
    blocks: tuple[str, ...]
    lost: int
    gained: int
    left_out: int
    """Number of samples beyond the maximum size."""


def packed_samples(pairs: Sequence[Pair], settings: Mapping[str, str]) -> PageSamples | None:
    """Return the changed samples of all pairs, in their order; None if there are none.

    `settings` says how each benchmark was evaluated, by its name.
    """
    subsets: dict[str, int] = {}
    counts, left_out, size = [0, 0], 0, 0
    heads: list[tuple[int, int, list[int]]] = []
    blocks: list[str] = []
    for group, kind, samples, names in _blocks(pairs):
        packed = _packed(samples)
        size += len(packed)
        if size > MAX_BYTES:
            left_out += len(samples)
            continue
        counts[kind] += len(samples)
        heads.append((group, kind, [subsets.setdefault(name, len(subsets)) for name in names]))
        blocks.append(packed)
    if not heads and not left_out:
        return None
    groups = []
    for pair in pairs:
        name = f"{one_line(pair.compared.benchmark)}, step {pair.before.step} to {pair.after.step}"
        facts = [_evaluated(pair.before), _evaluated(pair.after)]
        groups.append({"name": name, "facts": facts, "settings": settings.get(pair.compared.benchmark, "")})
    index = _packed({"groups": groups, "subsets": list(subsets), "blocks": heads})
    return PageSamples(index=index, blocks=tuple(blocks), lost=counts[0], gained=counts[1], left_out=left_out)


def _packed(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode())).decode()


def _evaluated(side: Side) -> str:
    when = "" if side.evaluated_at is None else f"evaluated {side.evaluated_at:%Y-%m-%d %H:%M} UTC"
    return ", ".join(filter(None, (when, one_line(side.engine))))


def _blocks(pairs: Sequence[Pair]) -> Iterator[_Block]:
    for group, pair in enumerate(pairs):
        for kind, examples in enumerate((pair.compared.lost, pair.compared.gained)):
            samples: list[_Sample] = []
            subsets: list[str] = []
            chars = 0
            for example in examples:
                sample = _sample(example, pair, is_lost=kind == 0)
                samples.append(sample)
                subsets.append(one_line(example.subset))
                chars += sum(map(len, sample))
                if len(samples) == _PER_BLOCK or chars > _CHARS_PER_BLOCK:
                    yield group, kind, samples, subsets
                    samples, subsets, chars = [], [], 0
            if samples:
                yield group, kind, samples, subsets


def _sample(example: Example, pair: Pair, *, is_lost: bool) -> _Sample:
    before, after = example.score_before, example.score_after
    return (
        one_line(example.sample_id),
        _text(example.prompt) or NOT_KEPT,
        _text(example.target) or "(empty)",
        heading_at(before, pair.before.step, is_better=is_lost),
        _answer(example.answer_before),
        _facts(before, example.status_before, example.tokens_before, example.ms_before),
        heading_at(after, pair.after.step, is_better=not is_lost),
        _answer(example.answer_after),
        _facts(after, example.status_after, example.tokens_after, example.ms_after),
    )


def _facts(score: float, status: SampleStatus, tokens: int | None, took_ms: int | None) -> str:
    facts = [f"score {score_text(score)}"]
    if tokens is not None:
        facts.append(count_text(tokens, "output token"))
    if took_ms is not None:
        facts.append(duration_text(took_ms / 1000))
    if status is SampleStatus.TRUNCATED:
        facts.append("finish reason length (max_tokens)")
    elif tokens is not None:
        facts.append("finish reason stop")
    return ", ".join(facts)


def _answer(answer: str | None) -> str:
    if answer is None:
        return NOT_KEPT
    return _text(answer) or "(empty answer)"


def _text(text: str) -> str:
    return shortened(clean(text).strip(), MAX_CHARS)
