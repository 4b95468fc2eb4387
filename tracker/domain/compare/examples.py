"""Samples that changed between two checkpoints, with both answers. Pure."""

from dataclasses import dataclass

import numpy as np

from eval_jobs.types import EvalResult, SampleStatus
from tracker.domain.scores.flips import RIGHT
from tracker.domain.scores.pairing import Pairing
from tracker.domain.scores.summary import Answered, answers_of


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sample whose score changed, with both answers."""

    sample_id: str
    subset: str
    prompt: str
    target: str
    answer_before: str | None
    """None if deleted to save space."""
    answer_after: str | None
    score_before: float
    score_after: float
    status_before: SampleStatus = SampleStatus.SCORED
    status_after: SampleStatus = SampleStatus.SCORED
    tokens_before: int | None = None
    """Output tokens of the answer. None: the server reported no count."""
    tokens_after: int | None = None
    ms_before: int | None = None
    """Time of the answer. None: unknown."""
    ms_after: int | None = None


def examples_of(
    before: EvalResult, after: EvalResult, pairing: Pairing, limit: int | None
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Return the lost samples with the largest losses and the gained ones with the largest gains."""
    old, new = answers_of(before), answers_of(after)
    changes, was_right = pairing.candidate - pairing.baseline, pairing.baseline > RIGHT
    sides = (was_right & (pairing.candidate <= RIGHT), changes), (~was_right & (pairing.candidate > RIGHT), -changes)
    found: list[tuple[Example, ...]] = []
    for is_flipped, size in sides:
        largest = sorted(np.flatnonzero(is_flipped).tolist(), key=lambda i: (size[i], i))[:limit]
        keys = [pairing.sample_ids[i] for i in largest]
        found.append(tuple(_example(old[key], new[key]) for key in keys))
    return found[0], found[1]


def _example(before: Answered, after: Answered) -> Example:
    old, new = before.sample, after.sample
    return Example(
        sample_id=new.sample_id,
        subset=new.subset,
        prompt=new.prompt,
        target=new.target,
        answer_before=before.answer,
        answer_after=after.answer,
        score_before=old.score or 0.0,
        score_after=new.score or 0.0,
        status_before=old.status,
        status_after=new.status,
        tokens_before=old.output_tokens,
        tokens_after=new.output_tokens,
        ms_before=old.answer_ms,
        ms_after=new.answer_ms,
    )
