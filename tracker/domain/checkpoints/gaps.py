"""Which of the checkpoints that a source could not take are still to be told, by what is known of the run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eval_jobs.types import EvalRecord
from tracker.domain.records.types import Gap


def unsettled(found: Iterable[Gap], known: Iterable[Gap], records: Iterable[EvalRecord]) -> Iterator[Gap]:
    """Yield the gaps that stand: no step is inferred of which something is known, none was evaluated after all.

    Args:
        found: by a source, of one run.
        known: what the history remembers as gaps of that run, which may be the same.
        records: of that run.
    """
    codes: dict[int, dict[str, Gap]] = {}
    for gap in known:
        codes.setdefault(gap.step, {})[gap.code] = gap
    evaluated = {r.plan.checkpoint.step: r.finished_at for r in sorted(records, key=lambda r: r.finished_at)}
    for gap in found:
        before, finished_at = codes.get(gap.step, {}), evaluated.get(gap.step)
        if gap.is_inferred and (finished_at is not None or before.keys() - {gap.code}):
            continue
        earlier = before.get(gap.code)
        if earlier is None or finished_at is None or finished_at <= earlier.seen_at:
            yield gap
