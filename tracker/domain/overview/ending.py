"""How a command that evaluates ends: its exit code, what was done, and what to do next. Pure."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from eval_jobs.errors import ExitCode
from tracker.domain.checkpoints.gaps import without
from tracker.domain.records.display import count_text, evaluated_text
from tracker.domain.records.types import Gap, Report, Verdict, VerdictWord

SEND = "check the MLflow store of tracking.uri; the next `tracker watch` sends them"

RunStep = tuple[str, int]
"""Run and step of a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What became of the checkpoints that a command found, and what is not delivered yet."""

    judged: int = 0
    """Checkpoints with a result of every benchmark."""
    unscored: int = 0
    """Checkpoints without any score."""
    failed: int = 0
    """Other checkpoints of which a benchmark has no result at all."""
    uncovered: int = 0
    """Other checkpoints of which a benchmark has too few scores."""
    left_out: int = 0
    """Checkpoints that were not evaluated: skipped, unreadable or deleted."""
    unsent: int = 0
    """Results that wait for MLflow."""
    rejected: int = 0
    """Results that MLflow rejected."""
    pending_alerts: int = 0
    """Alerts that wait for a channel; silenced ones do not count."""

    @property
    def evaluated(self) -> int:
        """Checkpoints with a score."""
        return self.judged + self.failed + self.uncovered


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The end of a command that evaluates."""

    code: ExitCode
    text: str
    hint: str = ""
    """What to do next; empty if nothing is left to do."""

    @property
    def line(self) -> str:
        """The text with the hint."""
        if self.hint:
            return f"{self.text} (hint: {self.hint})"
        return self.text


def totals_of(found: Collection[RunStep], reports: Iterable[Report], gaps: Iterable[Gap]) -> Totals:
    """Return what became of the checkpoints in `found`; `reports` and `gaps` are those of their runs."""
    verdicts: dict[RunStep, dict[str, Verdict]] = {}
    for report in sorted(reports, key=lambda report: report.created_at):
        newest = {verdict.benchmark: verdict for verdict in report.verdicts}
        verdicts.setdefault((report.run_id, report.step), {}).update(newest)
    gaps = tuple(gaps)
    known_gaps = {(gap.run_id, gap.step) for gap in gaps}
    counts = dict.fromkeys(("judged", "unscored", "failed", "uncovered", "left_out"), 0)
    for checkpoint in found:
        if checkpoint not in verdicts and checkpoint in known_gaps:
            counts["left_out"] += 1
        else:
            counts[_result(verdicts.get(checkpoint))] += 1
    counts["left_out"] += sum(_more_left_out(found, verdicts, gaps))
    return Totals(**counts)


def ending(totals: Totals) -> Ending:
    """Return how a command ends: exit code 0 only if every checkpoint was judged and everything was delivered."""
    code, hint = _cause(totals)
    return Ending(code=code, text="; ".join(_parts(totals)), hint=hint)


def known_text(totals: Totals, *, is_last: bool) -> str:
    """Return how many checkpoints were evaluated earlier, if nothing is to do; `is_last`: no newer ones are awaited."""
    found = totals.evaluated + totals.unscored + totals.left_out
    then = "nothing to do" if is_last else "waiting for new ones"
    return f"{totals.evaluated} of {count_text(found, 'checkpoint')} already evaluated; {then}"


def sweep_ending(*, missing: int, unsent: int, note: str) -> Ending:
    """Return how a sweep run ends. `note` says what was not evaluated at all; `unsent` results wait for MLflow."""
    if unsent:
        text = f"{count_text(missing, 'missing result')}; {count_text(unsent, 'result')} pending for MLflow"
        return Ending(code=ExitCode.BROKEN, text=text, hint=SEND)
    if missing:
        hint = "remove the cause, shown above, and run the sweep again"
        return Ending(code=ExitCode.UNKNOWN, text=count_text(missing, "missing result"), hint=hint)
    if note:
        hint = "`tracker sweep run NAME --dry-run` shows what the sweep selects"
        return Ending(code=ExitCode.UNKNOWN, text=note, hint=hint)
    return Ending(code=ExitCode.OK, text="everything is measured")


def _more_left_out(found: Collection[RunStep], judged: Collection[RunStep], gaps: Iterable[Gap]) -> Iterator[int]:
    """Yield how many checkpoints are left out besides the first, for each gap of several."""
    for gap in gaps:
        if gap.last_step is not None and (gap.run_id, gap.step) in found:
            left = without(gap, sorted({gap.step, *(step for run_id, step in judged if run_id == gap.run_id)}))
            yield sum(one.count for one in left)


def _result(verdicts: dict[str, Verdict] | None) -> str:
    """Return the count that a checkpoint adds to; None: it has no verdicts, although it was found."""
    if verdicts is None or all(verdict.score is None for verdict in verdicts.values()):
        return "unscored"
    missing = [verdict for verdict in verdicts.values() if verdict.word is VerdictWord.MISSING]
    if not missing:
        return "judged"
    if any(verdict.coverage == 0.0 for verdict in missing):
        return "failed"
    return "uncovered"


def _cause(totals: Totals) -> tuple[ExitCode, str]:
    failed = totals.unscored + totals.failed
    causes = (
        (failed, ExitCode.BROKEN, "remove the cause, shown above, and run the same command again"),
        (totals.unsent, ExitCode.BROKEN, SEND),
        (totals.rejected, ExitCode.BROKEN, "see `tracker alerts list`; the next `tracker watch` sends them again"),
        (totals.pending_alerts, ExitCode.BROKEN, "see `tracker alerts list`; the next `tracker watch` sends them"),
        (totals.left_out, ExitCode.UNKNOWN, "`tracker history` shows the reasons"),
        (totals.uncovered, ExitCode.UNKNOWN, "the reasons are shown above"),
        (not totals.judged, ExitCode.UNKNOWN, "run `tracker doctor`, and check run.output_dir and watch.pattern"),
    )
    return next(((code, hint) for count, code, hint in causes if count), (ExitCode.OK, ""))


def _parts(totals: Totals) -> Iterator[str]:
    if not (totals.evaluated or totals.unscored or totals.left_out):
        yield "no checkpoint found"
    else:
        yield f"{evaluated_text(totals.evaluated, totals.unscored)}, {totals.left_out} not evaluated"
    more = (
        (totals.failed, "checkpoint", "with a missing result"),
        (totals.uncovered, "checkpoint", "with too few scores"),
        (totals.unsent, "result", "pending for MLflow"),
        (totals.rejected, "result", "rejected by MLflow"),
        (totals.pending_alerts, "alert", "pending"),
    )
    for count, noun, what in more:
        if count:
            yield f"{count_text(count, noun)} {what}"
