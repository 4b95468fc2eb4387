"""Samples as a page shows them: texts cleaned and shortened, correct or incorrect at every checkpoint. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tracker.domain.forgetting.types import LostTexts
from tracker.domain.forgetting.wording import life_text
from tracker.domain.records.display import clean, one_line, shortened

MAX_CHARS = 700
"""Maximum characters of a prompt, target or answer; a report is not an archive."""
NOT_KEPT = "(not kept)"
_CELLS = {True: "r", False: "w", None: "n"}


@dataclass(frozen=True, kw_only=True)
class LostSampleView:
    """One lost sample."""

    sample_id: str
    subset: str
    texts: LostTexts | None
    """Cleaned and shortened; None: not available."""
    cells: tuple[str, ...]
    """CSS class of every checkpoint: `r`, `w` or `n`, and `mark` if its answer is shown."""
    life: str


def lost_sample(
    place: tuple[str, str],
    texts: LostTexts | None,
    right: Sequence[bool | None],
    steps: Sequence[int],
    shown: Collection[int],
) -> LostSampleView:
    """Return the view of the lost sample with this id and subset.

    `right` says whether the sample was correct at each of the steps (None: no score), `shown` whose answers to show.
    """
    marks = (" mark" * (step in shown) for step in steps)
    if texts is not None:
        texts = replace(
            texts,
            prompt=shown_text(texts.prompt),
            target=shown_text(texts.target),
            answer_before=shown_answer(texts.answer_before),
            answer_after=shown_answer(texts.answer_after),
        )
    return LostSampleView(
        sample_id=one_line(place[0]),
        subset=one_line(place[1]),
        texts=texts,
        cells=tuple(_CELLS[is_right] + mark for is_right, mark in zip(right, marks, strict=True)),
        life=life_text(right, steps),
    )


def shown_text(value: str) -> str:
    """Return a text cleaned and shortened."""
    return shortened(clean(value).strip(), MAX_CHARS)


def shown_answer(value: str | None) -> str | None:
    """Return an answer cleaned and shortened; None: not stored."""
    if value is None:
        return None
    return shown_text(value)
