"""Checkpoints that will not be evaluated, each once with the reason, until they become usable. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from eval_jobs.errors import CheckpointError, CheckpointVanished
from eval_jobs.types import EvalRecord
from tracker.domain.checkpoints.listing import Site
from tracker.domain.checkpoints.unusable import NotYet, Rejected
from tracker.domain.checkpoints.watching import missed_steps
from tracker.domain.records.types import Gap

ROTATION_HINT = "keep more checkpoints (save_total_limit) or save less often, and run the tracker during training"

UNFINISHED_HINT = "save this step again if you need it: the trainer deleted it before it was whole"


class Gaps:
    """The gaps of one output folder or bucket, and the steps from which further ones are inferred."""

    def __init__(self) -> None:
        self._gaps: dict[tuple[str, str], Gap] = {}
        self._steps: dict[str, dict[int, int | None]] = {}
        """Per run: every step seen -> steps between two saves according to its trainer_state.json."""
        self._joined: dict[str, int] = {}
        """Per run: the first watched step; no gap is inferred up to it."""
        self._places: dict[str, Site] = {}
        self._is_first_look = True

    def found(self) -> tuple[Gap, ...]:
        """Return all gaps, by run and step."""
        return tuple(sorted(self._gaps.values(), key=lambda g: (g.run_id, g.step, g.code)))

    def add(self, place: Site, error: CheckpointError, now: datetime) -> None:
        """Add a gap that an error explains."""
        self._add(place, code=error.code, message=error.message, hint=error.hint, now=now)

    def add_unusable(self, place: Site, readiness: NotYet | Rejected, now: datetime) -> None:
        """Add a folder that stays unusable."""
        self._add(place, code=readiness.code, message=readiness.reason, hint=readiness.hint, now=now)

    def add_vanished(self, place: Site, message: str, now: datetime, *, hint: str = ROTATION_HINT) -> None:
        """Add a folder that was deleted, unless it has another gap already."""
        if not any(uri == place.uri for uri, _ in self._gaps):
            self._add(place, code=CheckpointVanished.code, message=message, hint=hint, now=now)

    def add_missed(self, now: datetime) -> None:
        """Add the steps that the trainer must have saved and deleted between two scans."""
        for run_id, known in self._steps.items():
            if self._is_first_look:
                self._joined.setdefault(run_id, max(known))
            for step in missed_steps(known):
                known[step] = None
                if step > self._joined[run_id]:
                    uri = self._places[run_id].uri.rstrip("0123456789") + str(step)
                    place = _Missed(run_id=run_id, step=step, uri=uri)
                    self.add_vanished(place, "it was expected from the save interval but never seen", now)
        self._is_first_look = False

    def remember_step(self, place: Site, save_every: int | None, *, was_watched: bool = False) -> None:
        """Record that a step exists; `was_watched`: an earlier process watched this run from this step on or before."""
        known = self._steps.setdefault(place.run_id, {})
        known[place.step] = save_every or known.get(place.step)
        self._places[place.run_id] = place
        if was_watched:
            self._joined[place.run_id] = min(place.step, self._joined.get(place.run_id, place.step))
        elif not self._is_first_look:
            self._joined.setdefault(place.run_id, place.step)

    def forget(self, uri: str) -> None:
        """Remove the gaps of a folder, because it has become a checkpoint."""
        self._gaps = {key: gap for key, gap in self._gaps.items() if key[0] != uri}

    def _add(self, place: Site, *, code: str, message: str, hint: str, now: datetime) -> None:
        if (place.uri, code) in self._gaps:
            return
        self._gaps[place.uri, code] = Gap(
            run_id=place.run_id,
            step=place.step,
            source_uri=place.uri,
            code=code,
            message=message,
            hint=hint,
            seen_at=now,
            is_inferred=isinstance(place, _Missed),
        )


def unsettled(found: Iterable[Gap], known: Iterable[Gap], records: Iterable[EvalRecord]) -> Iterator[Gap]:
    """Yield the gaps that are valid: not inferred for a step with other data, and not evaluated after all.

    All are of one run: `found` by a source, `known` in the store, which may be the same.
    """
    codes: dict[int, dict[str, Gap]] = {}
    for gap in known:
        codes.setdefault(gap.step, {})[gap.code] = gap
    evaluated = {r.plan.checkpoint.step: r.finished_at for r in sorted(records, key=lambda r: r.finished_at)}
    for gap in found:
        if _stands(gap, codes.get(gap.step, {}), evaluated.get(gap.step)):
            yield gap


def _stands(gap: Gap, before: Mapping[str, Gap], finished_at: datetime | None) -> bool:
    """Return whether a gap is valid, given the stored gaps of its step and the end of its evaluation."""
    if gap.is_inferred and (finished_at is not None or before.keys() - {gap.code}):
        return False
    earlier = before.get(gap.code)
    return earlier is None or finished_at is None or finished_at <= earlier.seen_at


@dataclass(frozen=True, kw_only=True)
class _Missed:
    run_id: str
    step: int
    uri: str
