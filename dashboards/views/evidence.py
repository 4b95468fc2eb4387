"""Evidence for verdicts: comparisons -> rows of text. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dashboards.views.tables import coverage_text
from tracker.domain.calibration.repetition_text import repetition_text
from tracker.domain.overview.noise import noise_facts, range_text
from tracker.domain.overview.run import Overview
from tracker.domain.overview.standings import Standing
from tracker.domain.records.alerts import baseline_text
from tracker.domain.records.calibration import Repetition
from tracker.domain.records.display import (
    NOTHING,
    change_interval_text,
    count_text,
    one_line,
    p_text,
    score_text,
    signed_text,
    steps_text,
)
from tracker.domain.records.reason_text import reason_text, shown_p
from tracker.domain.records.types import IS_BACK, WORSE, Comparison, Verdict, VerdictWord
from tracker.domain.verdicts.screening import mean_text


@dataclass(frozen=True, kw_only=True)
class ProofView:
    """One comparison behind a verdict."""

    against: str
    """Baseline and its steps."""
    chosen: str
    """Number of checkpoints in the baseline's mean, and of blocks that it is the best of."""
    newest: str
    """Steps of the candidate's side."""
    pooled: str
    """Number of checkpoints in the candidate's mean; empty for the candidate alone."""
    delta: str
    interval: str
    flips: str
    common: str
    p: str
    """One-sided p-value with jitter, in the observed direction."""
    p_items: str
    """p-value from the samples alone, without jitter; empty for a gain, where nothing depends on it."""
    level: str
    """Level that p was compared with; empty if the verdict depends on another comparison."""
    jitter: str


@dataclass(frozen=True, kw_only=True)
class EvidenceView:
    """The newest verdict on a benchmark, with its evidence."""

    benchmark: str
    step: int
    word: VerdictWord
    reason: str
    score: str
    notes: tuple[str, ...]
    """Onset of the loss, minimum detectable loss, and run-to-run noise."""
    proofs: tuple[ProofView, ...]
    """The deciding comparison first."""


@dataclass(frozen=True, kw_only=True)
class NoiseView:
    """Noise between the checkpoints of a suite."""

    facts: tuple[tuple[str, str], ...]
    """Name and text of each aspect."""
    out_of_range: str
    """What leaves the range in which the error rate was simulated; empty for nothing."""


def noise_views(view: Overview) -> tuple[NoiseView, ...]:
    """Return the newest noise of every suite; () if no report has one."""
    return tuple(NoiseView(facts=tuple(noise_facts(one)), out_of_range=range_text(one)) for one in view.noise)


def evidence(
    view: Overview, found: Iterable[Standing], repetitions: Mapping[str, Repetition] = MappingProxyType({})
) -> tuple[EvidenceView, ...]:
    """Return the newest verdict on each benchmark, in the order of `found`."""
    cases = []
    for standing in found:
        verdict = view.verdicts[standing.step, standing.benchmark]
        cases.append(_evidence(standing.step, verdict, repetitions.get(standing.benchmark)))
    return tuple(cases)


def proofs_of(verdict: Verdict) -> tuple[ProofView, ...]:
    """Return the comparisons of a verdict, the deciding one first."""
    first = (_proof(comparison, verdict.alpha_test) for comparison in verdict.comparisons[:1])
    return (*first, *(_proof(comparison, None) for comparison in verdict.comparisons[1:]))


def onset_text(verdict: Verdict) -> str:
    """Return a text with the step since which a benchmark is or was lost; empty if no loss is known."""
    if verdict.lost_since is None:
        return ""
    if verdict.word in WORSE:
        return f"lost since step {verdict.lost_since}"
    if verdict.word in IS_BACK:
        return f"had been lost since step {verdict.lost_since}"
    return f"loss since step {verdict.lost_since} is still open"


def _evidence(step: int, verdict: Verdict, known: Repetition | None) -> EvidenceView:
    score, coverage = mean_text(verdict), coverage_text(verdict)
    return EvidenceView(
        benchmark=one_line(verdict.benchmark),
        step=step,
        word=verdict.word,
        reason=one_line(reason_text(verdict)),
        score=f"{score} ({coverage} scored)" if coverage else score,
        notes=tuple(_notes(verdict, known)),
        proofs=proofs_of(verdict),
    )


def _notes(verdict: Verdict, known: Repetition | None) -> Iterator[str]:
    if verdict.lost_since is not None:
        yield onset_text(verdict)
    if verdict.word is VerdictWord.INCONCLUSIVE and verdict.mde_pooled is not None:
        yield f"minimum detectable loss of the mean of four checkpoints: {score_text(verdict.mde_pooled)}"
    if known is not None and verdict.comparisons:
        yield one_line(repetition_text(known))


def _proof(comparison: Comparison, level: float | None) -> ProofView:
    pooled = len(comparison.pooled_steps)
    p, side = shown_p(comparison)
    p_items = f"samples only {p_text(comparison.p_worse_items)}" if side == "worse" else ""
    return ProofView(
        against=baseline_text(comparison.baseline, comparison.baseline_steps),
        chosen=", ".join(_chosen(comparison)),
        newest=steps_text(comparison.pooled_steps),
        pooled=f"mean of {pooled}" if pooled > 1 else "",
        delta=signed_text(comparison.delta),
        interval=change_interval_text(comparison.ci_low, comparison.ci_high),
        flips=f"{comparison.n_lost} / {comparison.n_gained}",
        common=f"of {comparison.n_common}",
        p=f"{p_text(p)} ({side})",
        p_items=p_items,
        level="" if level is None else p_text(level),
        jitter=f"{100 * comparison.jitter:.2f}" if comparison.jitter > 0 else NOTHING,
    )


def _chosen(comparison: Comparison) -> Iterator[str]:
    width, blocks = len(comparison.baseline_steps), comparison.selected_from
    if width > 1:
        yield f"mean of {width}"
    if blocks > 1:
        yield f"best of {count_text(blocks, 'block')}"
