"""Two evaluations that differ in what is gated: another prompt, or other serving settings. Pure.

    alike = asked_alike(baseline, candidate, (GatedChange.PROMPT,))
    compare(alike.baseline, candidate)        # its questions now have the ids of the candidate's
    alike.differences                         # {"prompt_template is ..., was ...": ("facts", "sums")}

A question is identified by its content, which changes with the prompt. Its place does not change: the data is the
same, so the third question of a subset is the same question, and its expected answer must be the same too.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from eval_jobs.identity import benchmark_fingerprint, series_fingerprint, series_fingerprints, serve_settings
from eval_jobs.types import Benchmark, EvalRecord, EvalResult, SampleScore
from tracker.domain.gate.rules import GatedChange
from tracker.domain.records.reason_text import difference_text
from tracker.domain.scores.pairing import benchmark_of, explain_difference, neutral_differences, served_alike
from tracker.domain.scores.summary import result_of

Place = tuple[str, int, int]
"""Subset, position in the subset, repeat."""


@dataclass(frozen=True, kw_only=True)
class Alike:
    """A baseline as if it had been evaluated and served like the candidate."""

    baseline: EvalRecord
    differences: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Intended differences, in words -> benchmarks they affect; an empty tuple is a difference in serving."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Benchmark -> why its questions are not known to be the same."""


def asked_alike(baseline: EvalRecord, candidate: EvalRecord, changed: Collection[GatedChange]) -> Alike:
    """Return the baseline with the settings in `changed` taken from the candidate, if nothing else differs."""
    alike = Alike(baseline=baseline)
    if GatedChange.PROMPT in changed:
        for own in baseline.plan.suite.benchmarks:
            other = benchmark_of(candidate.plan, own.name)
            if other is not None and _differ_in_prompt(own, other):
                alike = _with_prompt(alike, own, other, candidate)
    if GatedChange.ENGINE in changed:
        differences = {**alike.differences, **dict.fromkeys(_engine_phrases(candidate, baseline), ())}
        plan = replace(alike.baseline.plan, serve=candidate.plan.serve)
        alike = replace(alike, baseline=replace(alike.baseline, plan=plan), differences=differences)
    return alike


def not_found(baseline: EvalRecord, candidate: EvalRecord, changed: Collection[GatedChange]) -> tuple[GatedChange, ...]:
    """Return the entries of `changed` that do not differ between both sides."""
    others = ((own, benchmark_of(candidate.plan, own.name)) for own in baseline.plan.suite.benchmarks)
    found = {
        GatedChange.PROMPT: any(other is not None and _differ_in_prompt(own, other) for own, other in others),
        GatedChange.ENGINE: next(_engine_phrases(candidate, baseline), None) is not None,
    }
    return tuple(change for change in changed if not found[change])


def _with_prompt(alike: Alike, own: Benchmark, other: Benchmark, candidate: EvalRecord) -> Alike:
    """Return `alike` with one benchmark as if evaluated with the prompt of `other`, the candidate's benchmark."""
    baseline = alike.baseline
    before, after = result_of(baseline, own.name), result_of(candidate, own.name)
    if before is None or after is None:
        return alike
    suite = baseline.plan.suite
    prompted = replace(own, prompt_template=other.prompt_template, few_shot=other.few_shot)
    fingerprint = benchmark_fingerprint(prompted, suite)
    measured = (*series_fingerprints(baseline.plan, [before]), *series_fingerprints(candidate.plan, [after]))
    if measured != (series_fingerprint(own, suite), series_fingerprint(prompted, suite)):
        return alike  # more than the prompt differs: the comparison reports it
    asked = _asked_like(before, after)
    if isinstance(asked, str):
        return replace(alike, refusals={**alike.refusals, own.name: asked})
    asked = replace(asked, fingerprint=fingerprint)
    differences = dict(alike.differences)
    # Differences in serving are not part of the prompt.
    for phrase in explain_difference(replace(candidate.plan, serve=baseline.plan.serve), baseline.plan, own.name):
        differences[phrase] = (*differences.get(phrase, ()), own.name)
    benchmarks = {b.name: b for b in suite.benchmarks} | {own.name: prompted}
    outcomes = {o.benchmark: o for o in baseline.outcomes} | {own.name: asked}
    plan = replace(baseline.plan, suite=replace(suite, benchmarks=tuple(benchmarks.values())))
    baseline = replace(baseline, plan=plan, outcomes=tuple(outcomes.values()))
    return replace(alike, baseline=baseline, differences=differences)


def _differ_in_prompt(one: Benchmark, other: Benchmark) -> bool:
    return (one.prompt_template, one.few_shot) != (other.prompt_template, other.few_shot)


def _asked_like(baseline: EvalResult, candidate: EvalResult) -> EvalResult | str:
    """Return the baseline with the candidate's questions, or why they are not known to be the same."""
    if baseline.left_out or candidate.left_out:
        return "one side was only screened, and a different prompt selects different samples"
    mine, theirs = dict(_placed(baseline)), dict(_placed(candidate))
    if mine.keys() != theirs.keys():
        return f"the questions differ ({len(mine)} in the baseline, {len(theirs)} in the candidate)"
    other = next((place for place in mine if mine[place].target != theirs[place].target), None)
    if other is not None:
        return f"question {other[1] + 1} of subset {other[0]} has a different expected answer"
    samples = (
        replace(sample, sample_id=theirs[place].sample_id, cluster_id=theirs[place].cluster_id)
        for place, sample in mine.items()
    )
    return replace(baseline, samples=tuple(samples))


def _placed(result: EvalResult) -> Iterator[tuple[Place, SampleScore]]:
    """Yield each sample with its place; samples are in the order of the data."""
    counts: dict[tuple[str, int], int] = {}
    for sample in result.samples:
        of_kind = (sample.subset, sample.repeat)
        number = counts[of_kind] = counts.get(of_kind, -1) + 1
        yield (sample.subset, number, sample.repeat), sample


def _engine_phrases(candidate: EvalRecord, baseline: EvalRecord) -> Iterator[str]:
    asked = replace(baseline.plan, suite=candidate.plan.suite)
    if not served_alike(candidate.plan, asked):
        benchmarks = candidate.plan.suite.benchmarks
        yield from explain_difference(candidate.plan, asked, benchmarks[0].name) if benchmarks else ()
    elif serve_settings(candidate.plan.serve) != serve_settings(asked.serve):
        yield from map(difference_text, neutral_differences(candidate.plan, asked))
    now, was = candidate.engine, baseline.engine
    if now is not None and was is not None and (now.name, now.version) != (was.name, was.version):
        yield f"engine is {now.name} {now.version}, was {was.name} {was.version}"
