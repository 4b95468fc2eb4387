"""The clusters of a gated benchmark: which the policy asks for, and whether it misses some. Pure."""

from collections import Counter
from dataclasses import replace

from eval_jobs.contexts import DOCUMENT, PASSAGE
from eval_jobs.types import EvalRecord, EvalResult, SampleScore
from tracker.domain.gate.rules import BenchmarkRule, Clusters, GatePolicy
from tracker.domain.gate.types import Contexts
from tracker.domain.records.display import count_text
from tracker.domain.scores.grouping import grouping_of
from tracker.domain.scores.pairing import pair
from tracker.domain.scores.statistics.few_clusters import differ_p
from tracker.domain.scores.summary import result_of

MIN_SUBSETS = 10
"""Fewer subsets are too few to take the place of samples: the test would have no power."""
LOOKS_CLUSTERED = 0.01
"""Level of the test that the changes of one subset go together."""

_KINDS = {PASSAGE: "passage", DOCUMENT: "document"}


def as_asked(record: EvalRecord, policy: GatePolicy) -> EvalRecord:
    """Return the record with its samples in the clusters that the policy asks for."""
    results = {result.benchmark: _regrouped(result, policy.rule_of(result.benchmark)) for result in record.results}
    return replace(record, outcomes=tuple(results.get(one.benchmark, one) for one in record.outcomes))


def counted_contexts(record: EvalRecord, benchmark: str, clusters: Clusters) -> Contexts | None:
    """Return the clusters of a result's samples; None if no two samples share one."""
    result = result_of(record, benchmark)
    if result is None or clusters is Clusters.NONE:
        return None
    names = {sample.sample_id: _cluster(sample, clusters) for sample in result.samples}
    counts = Counter(filter(None, names.values()))
    shared = {name: count for name, count in counts.items() if count > 1}
    if not shared:
        return None
    kind = "subset" if clusters is Clusters.SUBSET else _kind(next(iter(shared)))
    return Contexts(kind=kind, count=len(shared), samples=sum(shared.values()))


def missed_clusters(before: EvalRecord, after: EvalRecord, benchmark: str, rule: BenchmarkRule) -> str:
    """Return why samples look clustered although the policy takes them as independent; empty if they do not.

    Both records as they were measured, not `as_asked`.
    """
    found = counted_contexts(after, benchmark, Clusters.FOUND)
    if rule.clusters is Clusters.NONE and found is not None:
        return f'{contexts_text(found)} are taken as independent samples: remove clusters = "none"'
    if rule.clusters is Clusters.SUBSET or (found is not None and found.samples > _samples(after, benchmark) / 2):
        return ""
    if subsets_move_together(before, after, benchmark) < LOOKS_CLUSTERED:
        subsets = counted_contexts(after, benchmark, Clusters.SUBSET)
        named = "subsets" if subsets is None else contexts_text(subsets)
        return f'the changes within its {named} go together: set clusters = "subset"'
    return ""


def subsets_move_together(before: EvalRecord, after: EvalRecord, benchmark: str) -> float:
    """Return the p of "changes of one subset have nothing in common"; 1 with too few subsets or nothing to pair."""
    old, new = result_of(before, benchmark), result_of(after, benchmark)
    paired = None if old is None or new is None else pair(new, old)
    if new is None or paired is None:
        return 1.0
    subsets = {sample.sample_id: sample.subset for sample in new.samples}
    grouping = grouping_of([subsets[key] for key in paired.sample_ids])
    if len(grouping.names) < MIN_SUBSETS:
        return 1.0
    return differ_p(paired.candidate - paired.baseline, grouping.index)


def contexts_text(contexts: Contexts) -> str:
    """Return `122 passages`."""
    return count_text(contexts.count, contexts.kind)


def _samples(record: EvalRecord, benchmark: str) -> int:
    result = result_of(record, benchmark)
    return 0 if result is None else len({sample.sample_id for sample in result.samples})


def _regrouped(result: EvalResult, rule: BenchmarkRule) -> EvalResult:
    if rule.clusters is Clusters.FOUND:
        return result
    samples = tuple(replace(sample, cluster_id=_cluster(sample, rule.clusters)) for sample in result.samples)
    return replace(result, samples=samples)


def _cluster(sample: SampleScore, clusters: Clusters) -> str:
    names = {Clusters.FOUND: sample.cluster_id, Clusters.SUBSET: sample.subset, Clusters.NONE: ""}
    return names[clusters]


def _kind(cluster_id: str) -> str:
    return next((kind for start, kind in _KINDS.items() if cluster_id.startswith(start)), "cluster")
