"""Screening: which checkpoints need the rest of a benchmark, and how both parts become one record. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from eval_jobs.errors import EvaluateError
from eval_jobs.types import BenchmarkFailure, EvalPlan, EvalRecord, EvalResult, Outcome, Screen
from tracker.domain.records.display import duration_text, score_text
from tracker.domain.records.types import Baseline, Report, Verdict, VerdictWord

PART = "*"
"""Marks values that are based on a part of the samples."""


@dataclass(frozen=True, kw_only=True)
class Screening:
    """Which checkpoints are screened, and how large the screen is."""

    screen: Screen
    every: int
    """Every Nth checkpoint is evaluated in full, whatever its screen would show."""
    first: int
    """Number of first checkpoints that are evaluated in full, to show the noise of a healthy run."""


def to_ask_whole(report: Report) -> tuple[str, ...]:
    """Return the screened benchmarks whose screen is suspicious."""
    return tuple(v.benchmark for v in report.verdicts if v.screened and v.word is VerdictWord.SUSPECT)


def references_of_screens(report: Report) -> Mapping[str, tuple[int, ...]]:
    """Return by suspicious screened benchmark the steps that it is compared with, the newest first.

    One of them must be evaluated in full: without it the rest of the samples has nothing to be compared with.
    """
    found: dict[str, tuple[int, ...]] = {}
    for verdict in report.verdicts:
        for deciding in verdict.comparisons[:1]:
            is_doubt = verdict.screened is not None and verdict.word is VerdictWord.SUSPECT
            if is_doubt and deciding.baseline is not Baseline.PINNED:
                found[verdict.benchmark] = tuple(sorted(deciding.baseline_steps, reverse=True))
    return found


def neighbours_to_ask(report: Report) -> Mapping[int, tuple[str, ...]]:
    """Return by step which benchmarks to evaluate in full: at the steps that a suspicious full result is compared with.

    A loss that is no alarm yet is clearer if both sides were evaluated in full. About one healthy checkpoint in a
    hundred requires it.
    """
    wanted: dict[int, list[str]] = {}
    for verdict in report.verdicts:
        for deciding in verdict.comparisons[:1]:
            is_doubt = verdict.screened is None and verdict.word is VerdictWord.SUSPECT
            if is_doubt and deciding.baseline is not Baseline.PINNED:
                for step in {*deciding.baseline_steps, *deciding.pooled_steps} - {report.step}:
                    wanted.setdefault(step, []).append(verdict.benchmark)
    return {step: tuple(names) for step, names in sorted(wanted.items())}


def is_screen(plan: EvalPlan) -> bool:
    """Return whether a plan evaluates only the screen of each benchmark."""
    return plan.suite.part is not None and not plan.suite.part.is_rest


def is_rest(plan: EvalPlan) -> bool:
    """Return whether a plan evaluates only what a screen left out."""
    return plan.suite.part is not None and plan.suite.part.is_rest


def joined(before: EvalRecord, rest: EvalRecord) -> EvalRecord:
    """Return one record of the screen and the rest of a checkpoint: no sample twice, and none is missing.

    Benchmarks that are not in `rest` are as before. Latencies stay with the record of the screen, and engine, start and
    cost are those of `rest`: every record of a checkpoint has its own. Both have their samples; `before` may already be
    joined, and `rest` is of a plan of `identity.rest_plan`.
    """
    others = {outcome.benchmark: outcome for outcome in rest.outcomes}
    suite = replace(before.plan.suite, part=rest.plan.suite.part)
    return replace(
        rest,
        plan=replace(rest.plan, suite=suite),
        outcomes=tuple(_joined(outcome, others.get(outcome.benchmark)) for outcome in before.outcomes),
        finished_at=max(before.finished_at, rest.finished_at),  # of both parts
    )


def mean_text(verdict: Verdict) -> str:
    """Return the score; of a screen, with the margin of the estimate and a star."""
    part = verdict.screened
    if part is None:
        return score_text(verdict.score)
    margin = "" if part.margin is None else f" ± {score_text(part.margin)}"
    return f"{score_text(verdict.score)}{margin}{PART}"


def savings_text(verdicts: Collection[Verdict]) -> str:
    """Return what screening saved, estimated from the evaluated part of the same results; empty: nothing was screened.

    `verdicts` are the newest of every step and benchmark.
    """
    parts = [v.screened for v in verdicts if v.screened is not None]
    if not parts:
        return ""
    samples = sum(p.left_out for p in parts)
    seconds = sum(p.seconds * p.left_out / p.asked for p in parts)
    known = [round(p.tokens * p.left_out / p.asked) for p in parts if p.tokens is not None]
    tokens = f", {sum(known):,} tokens" if known else ""
    saved = f"{samples:,} samples{tokens} and {duration_text(seconds)}"
    return f"{PART} screened only: {len(parts)} of {len(verdicts)} results, which saved {saved}"


def sum_of_known(first: int | None, second: int | None) -> int | None:
    """Return the sum of two counts; None if one is unknown."""
    if first is None or second is None:
        return None
    return first + second


def _joined(first: Outcome, second: Outcome | None) -> Outcome:
    if second is None or (isinstance(first, EvalResult) and not first.left_out):
        return first
    if isinstance(first, BenchmarkFailure) or isinstance(second, BenchmarkFailure):
        return second  # a failure is a blind spot: the screen alone decides nothing
    if first.fingerprint != second.fingerprint:
        return BenchmarkFailure(
            benchmark=first.benchmark,
            fingerprint=second.fingerprint,
            code=EvaluateError.code,
            message="the screened samples and the rest were evaluated by different versions of the tracker",
            hint="evaluate the checkpoint again with `tracker evaluate`",
            retryable=False,
        )
    return replace(
        second,
        samples=(*first.samples, *second.samples),
        duration_s=first.duration_s + second.duration_s,
        input_tokens=sum_of_known(first.input_tokens, second.input_tokens),
        output_tokens=sum_of_known(first.output_tokens, second.output_tokens),
        left_out=0,
        has_texts=first.has_texts and second.has_texts,
    )
