"""Overview of a run: the newest verdict of each benchmark at each step, and the finding in one sentence. Pure.

The terminal's tables (`tracker.cli.tables.render`) and the HTML report both show this.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from eval_jobs.errors import CheckpointSkipped, CheckpointsUnnamed
from eval_jobs.types import Checkpoint
from tracker.domain.checkpoints.gaps import without
from tracker.domain.checkpoints.names import unit_of
from tracker.domain.overview.noise import newest_noise
from tracker.domain.records.branches import branches_of
from tracker.domain.records.calibration import NoiseOfRun
from tracker.domain.records.types import Gap, Report, Verdict, VerdictWord

SYMBOLS: Mapping[VerdictWord, str] = {
    VerdictWord.FORGOTTEN: "▼▼",
    VerdictWord.REGRESSED: "▼",
    VerdictWord.BELOW_GUESSING: "▾",
    VerdictWord.MISSING: "?",
    VerdictWord.INCOMPARABLE: "≠",
    VerdictWord.SUSPECT: "▽",
    VerdictWord.RECOVERED: "△",
    VerdictWord.TRANSIENT: "◇",
    VerdictWord.IMPROVED: "▲",
    VerdictWord.RISING: "↗",
    VerdictWord.INCONCLUSIVE: "~",
    VerdictWord.EQUIVALENT: "=",
    VerdictWord.NOT_LEARNED: "○",
    VerdictWord.FIRST: "·",
}
"""Distinguishable without colour; in the order of display, most important first."""

URGENCY = tuple(SYMBOLS)


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The verdicts of a run, one for each step and benchmark."""

    benchmarks: tuple[str, ...]
    """In the order of the newest report, then those that only older reports have."""
    steps: tuple[int, ...]
    """Steps with a report, ascending."""
    gaps: tuple[Gap, ...]
    """Checkpoints without any report, ascending by step."""
    verdicts: Mapping[tuple[int, str], Verdict]
    findings: tuple[tuple[int, Verdict], ...] = ()
    """(step, finding) on the checkpoint as a whole, subsets, answer length and truncation, ascending by step."""
    left: tuple[tuple[Checkpoint, int], ...] = ()
    """Checkpoints that training left behind, ascending by step, each with the first step that was written again."""
    unit: str = "step"
    """What a step counts."""
    noise: tuple[NoiseOfRun, ...] = ()
    """Noise between checkpoints, the newest of every suite."""

    def at(self, step: int, benchmark: str) -> Verdict | None:
        """Return the verdict on `benchmark` at `step`, or None if it was not part of the evaluation."""
        return self.verdicts.get((step, benchmark))

    def of(self, benchmark: str) -> tuple[tuple[int, Verdict], ...]:
        """Return (step, verdict) of one benchmark, ascending by step."""
        return tuple((s, self.verdicts[s, benchmark]) for s in self.steps if (s, benchmark) in self.verdicts)

    def newest_findings(self) -> tuple[Verdict, ...]:
        """Return the findings of the newest checkpoint, most urgent first."""
        found = [finding for step, finding in self.findings if step == self.steps[-1]]
        return tuple(sorted(found, key=lambda f: URGENCY.index(f.word)))


def overview(reports: Iterable[Report], gaps: Iterable[Gap] = ()) -> Overview:
    """Arrange reports by step and benchmark; if a step has several reports, the newest counts.

    Checkpoints that training left behind when it went back are separate: they are not on the path to the newest.
    """
    everything = sorted(reports, key=lambda r: (r.step, r.created_at))
    left = _left_behind(everything)
    ordered = [r for r in everything if r.plan_id not in left]
    verdicts: dict[tuple[int, str], Verdict] = {}
    benchmarks: dict[str, None] = {}
    for report in ordered:
        verdicts |= {(report.step, verdict.benchmark): verdict for verdict in report.verdicts}
        benchmarks = dict.fromkeys([*(verdict.benchmark for verdict in report.verdicts), *benchmarks])

    steps = tuple(sorted({r.step for r in ordered}))
    return Overview(
        benchmarks=tuple(benchmarks),
        steps=steps,
        gaps=tuple(sorted((gap for gap in gaps if gap.step not in steps), key=lambda gap: gap.step)),
        verdicts=verdicts,
        findings=tuple(_findings(ordered)),
        left=tuple({(c.step, c.digest): (c, end) for c, end in left.values()}.values()),
        unit=unit_of(ordered[-1].checkpoint.source_uri, ordered[-1].step) if ordered else "step",
        noise=newest_noise(ordered),
    )


def newest_of_reports(reports: Iterable[Report]) -> dict[str, tuple[str, ...]]:
    """Return, by plan, the benchmarks whose newest verdict at its step a report has: those that are shown."""
    ordered = sorted(reports, key=lambda r: (r.step, r.created_at))
    newest = {(report.step, verdict.benchmark): report.plan_id for report in ordered for verdict in report.verdicts}
    found: dict[str, tuple[str, ...]] = {report.plan_id: () for report in ordered}
    for (_, name), plan_id in newest.items():
        found[plan_id] = (*found[plan_id], name)
    return found


def _findings(reports: Sequence[Report]) -> Iterator[tuple[int, Verdict]]:
    """Yield (step, finding) of the reports with the newest verdicts."""
    newest = newest_of_reports(reports)
    for report in reports:
        names = newest[report.plan_id]
        for finding in report.findings:
            if finding.benchmark in names or (names and not finding.benchmark):
                yield report.step, finding


def _left_behind(reports: Sequence[Report]) -> dict[str, tuple[Checkpoint, int]]:
    """Return, by plan, the checkpoints that training left behind, and the first step that was written again."""
    measured = {r.plan_id: r.checkpoint for r in reports}
    branches = branches_of(measured.values())
    left: dict[str, tuple[Checkpoint, int]] = {}
    for plan_id, checkpoint in measured.items():
        end = branches.left_by(checkpoint)
        if end is not None:
            left[plan_id] = (checkpoint, end.step)
    return left


def open_gaps(reports: Iterable[Report], gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return the gaps of steps that were not evaluated after all."""
    ordered = sorted(reports, key=lambda report: report.created_at)
    return still_open({report.step: report.created_at for report in ordered}, gaps)


def still_open(judged_at: Mapping[int, datetime], gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return the gaps of steps that were not evaluated after all; `judged_at`: the newest verdict of each step."""
    last = {CheckpointsUnnamed.code: max(judged_at.values(), default=None)}  # it is about the run, not about a step
    found = tuple(gaps)
    known = sorted({*judged_at, *(gap.step for gap in found if gap.last_step is None)})
    left: list[Gap] = []
    for gap in found:
        if gap.last_step is not None:
            left += without(gap, known)
        elif not _is_closed(gap, last.get(gap.code, judged_at.get(gap.step))):
            left.append(gap)
    return tuple(sorted(left, key=lambda gap: gap.step))


def _is_closed(gap: Gap, judged_at: datetime | None) -> bool:
    """Return whether a checkpoint was evaluated after all, unlike one that was saved again later and is broken now."""
    if judged_at is None:
        return False
    return gap.code == CheckpointSkipped.code or judged_at >= gap.seen_at


def skipped_text(skipped: Sequence[Gap]) -> str:
    """Return one line with the skipped checkpoints and the reason."""
    steps = sorted(gap.step for gap in skipped)
    which = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} checkpoints, steps {steps[0]} to {steps[-1]}"
    return f"{which}: {skipped[0].message} (`tracker history` shows how to evaluate one)"
