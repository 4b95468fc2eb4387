"""Finds the questions of a benchmark that share a context, such as one passage. Pure.

Several questions about one passage are right or wrong together, so they are weaker evidence than as many independent
ones. The first of these that groups questions counts:

    what the data declares     the field `cluster` of a row
    the document               an id or a passage that the benchmark keeps beside the question
    the prompt                 200 equal characters after the part that all prompts of the subset begin with

A prefix that all questions of a subset share is its template or its worked examples, no passage.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eval_jobs.identity import content_hash
from eval_jobs.types import SampleScore

PREFIX_CHARS = 200
PASSAGE, DOCUMENT = "passage:", "document:"
"""Beginnings of the ids of found clusters; those that the data declares are as they are."""

_PASSAGES = ("passage", "context", "article", "story")
_DOCUMENTS = ("document_id", "passage_id", "context_id", "article_id", "story_id", "example_id")
_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class AskedSample:
    """One question as its model reads it."""

    subset: str
    prompt: str
    declared: str = ""
    """Cluster that the data declares; empty: none."""
    document: str = ""
    """Id of its document or passage (`document_id_of`); empty: unknown."""


def document_id_of(fields: Mapping[str, object]) -> str:
    """Return the id of the document in a question's fields, else of its passage; empty: there is none."""
    for name in _DOCUMENTS:
        if value := fields.get(name):
            return f"{DOCUMENT}{value}"
    for name in _PASSAGES:
        value = fields.get(name)
        if isinstance(value, str) and len(value) >= PREFIX_CHARS:  # not a label such as `chart`
            return _passage(value)
    return ""


def shared_contexts(questions: Sequence[AskedSample]) -> tuple[str, ...]:
    """Return the cluster of each question; empty if it shares its context with none. Equal questions count once."""
    distinct = tuple(dict.fromkeys(questions))
    for found in (_declared(distinct), _documents(distinct), _prefixes(distinct)):
        counts = Counter(filter(None, found))
        # A context that all questions share makes no difference between them.
        if len(set(found)) > 1 and max(counts.values()) > 1:
            break
    else:
        found = _declared(distinct)
    clusters = dict(zip(distinct, found, strict=True))
    return tuple(clusters[question] for question in questions)


def with_contexts(samples: Sequence[SampleScore]) -> tuple[SampleScore, ...]:
    """Return the samples with the clusters that their prompts show; repeats share those of their sample."""
    by_id = {s.sample_id: AskedSample(subset=s.subset, prompt=s.prompt, declared=s.cluster_id) for s in samples}
    clusters = dict(zip(by_id, shared_contexts(tuple(by_id.values())), strict=True))
    return tuple(replace(sample, cluster_id=clusters[sample.sample_id]) for sample in samples)


def _declared(questions: Iterable[AskedSample]) -> tuple[str, ...]:
    return tuple(question.declared for question in questions)


def _documents(questions: Iterable[AskedSample]) -> tuple[str, ...]:
    return tuple(question.document for question in questions)


def _prefixes(questions: Sequence[AskedSample]) -> tuple[str, ...]:
    prompts: dict[str, list[str]] = defaultdict(list)
    for question in questions:
        prompts[question.subset].append(question.prompt)
    starts = {subset: _common_chars(texts) for subset, texts in prompts.items()}
    prefixes = [question.prompt[starts[question.subset] :][:PREFIX_CHARS] for question in questions]
    counts = Counter(prefixes)
    is_shared = [len(prefix) == PREFIX_CHARS and counts[prefix] > 1 for prefix in prefixes]
    return tuple(_passage(text) if shared else "" for text, shared in zip(prefixes, is_shared, strict=True))


def _common_chars(texts: Sequence[str]) -> int:
    """Return with how many equal characters all texts begin."""
    first, last = min(texts), max(texts)
    for at, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return at
    return min(len(first), len(last))


def _passage(text: str) -> str:
    return f"{PASSAGE}{content_hash(text)[:_DIGITS]}"
