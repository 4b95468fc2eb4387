"""A loss with numbers of its own, which differ from those of every comparison."""

from dataclasses import replace

from tests.records import RecordedRun
from tracker.domain.records.losses import Drop
from tracker.domain.records.types import Verdict

DROP = Drop(
    baseline_steps=(400, 500),
    before=0.731,
    newest_steps=(1000,),
    now=0.037,
    delta=-0.694,
    ci_low=-0.8,
    ci_high=-0.6,
    n_common=80,
    n_lost=61,
    n_gained=2,
)


def with_newest(run: RecordedRun, **changes: object) -> RecordedRun:
    """Return the run whose newest verdict on the first benchmark is another one."""
    newest = run.reports[-1]
    changed: Verdict = replace(newest.verdicts[0], **changes)  # type: ignore[arg-type]
    moved = replace(newest, verdicts=(changed, *newest.verdicts[1:]))
    return replace(run, reports=(*run.reports[:-1], moved))
