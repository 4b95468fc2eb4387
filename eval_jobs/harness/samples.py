"""Rows of `samples_*.jsonl`, which lm-evaluation-harness writes with --log_samples -> sample scores. Pure.

A row is one question through one filter. Rules:
    scored    the metric is a finite number from 0 to 1
    unscored  it was answered, and the metric has no value
    error     the response is missing or the harness's placeholder, or the file lacks an evaluated question
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from eval_jobs import limits
from eval_jobs.contexts import with_contexts
from eval_jobs.errors import BadData
from eval_jobs.harness.fields import finite
from eval_jobs.identity import numbered, sample_key
from eval_jobs.types import SampleScore, SampleStatus

Row = Mapping[str, object]

SUBSET = "default"
NO_ANSWER = "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"
"""Placeholder that the harness can write if a server returns no text. It is scored like an answer."""
NO_LIKELIHOOD = -1e9
"""Log-likelihood of a token if a server returns none. No model returns one nearly as small."""
_LOST = "evaluated, but missing from the samples file"


def samples_of_task(rows: Sequence[Row], *, metric: str, through: str, filters: int) -> tuple[SampleScore, ...] | str:
    """Return the samples of one metric through one filter, or why they cannot be used.

    `through`: the filter, empty in files of versions without filters; `filters`: how many the metric was reported for.
    """
    if filters > 1 and not all("filter" in row for row in rows):
        return "the samples do not record their filter"
    own = through_filter(rows, through)
    if not own:
        return f"no samples of the filter {through!r}"
    fault = _fault(own, metric)
    if fault:
        return fault
    ids = numbered(_key(row) for row in own)
    return with_contexts([_sample(row, sample_id, metric) for row, sample_id in zip(own, ids, strict=True)])


def _fault(rows: Sequence[Row], metric: str) -> str:
    """Return why rows are not samples of a metric; empty if they are."""
    if not any(metric in row for row in rows):
        return f"no `{metric}` in the samples"
    for row in rows:
        if _is_no_share(row.get(metric)):
            return f"`{metric}` of a sample is not a score from 0 to 1"
    for row in rows:
        if not _requests(row):
            return "`arguments` of a sample contains no request"
    return ""


def through_filter(rows: Sequence[Row], through: str) -> tuple[Row, ...]:
    """Return the rows of one filter; rows without a filter (older versions) belong to every filter."""
    return tuple(row for row in rows if row.get("filter", through) == through)


def contexts_of(row: Row) -> tuple[str, ...]:
    """Return the distinct contexts of the requests of one question."""
    return _asked(row)[0]


def missing_samples(known: int, expected: int | None) -> Iterator[SampleScore]:
    """Yield an error for every evaluated sample that is missing from the file.

    Raises:
        BadData: more samples were evaluated than there can be.
    """
    if (expected or 0) > limits.ROWS.most:
        raise BadData(f"the file reports {expected} samples and contains {known}", hint="use an unmodified result file")
    for index in range(known, expected or 0):
        yield SampleScore(sample_id=f"lost#{index}", subset=SUBSET, score=None, status=SampleStatus.ERROR, detail=_LOST)


def _is_no_share(value: object) -> bool:
    if isinstance(value, list | dict | str):
        return True
    score = float(value) if isinstance(value, bool) else finite(value)
    return score is not None and not 0 <= score <= 1


def _requests(row: Row) -> tuple[tuple[str, ...], ...]:
    """Return the texts of every request: the context, and the continuation if the request has one."""
    arguments = row.get("arguments")
    if isinstance(arguments, dict):
        arguments = [list(one.values()) if isinstance(one, dict) else one for one in arguments.values()]
    if not isinstance(arguments, list):
        return ()
    requests = [one if isinstance(one, list) else [one] for one in arguments]
    return tuple(texts for one in requests if (texts := tuple(_texts(one))))


def _texts(request: Sequence[object]) -> Iterator[str]:
    """Yield the texts of a request; chat messages are JSON in a list of length 1."""
    for part in request:
        text = part[0] if isinstance(part, list) and len(part) == 1 else part
        if isinstance(text, str):
            yield text


def _key(row: Row) -> str:
    contexts, choices = _asked(row)
    turns = [*(("user", text) for text in contexts), *(("choice", text) for text in choices)]
    return sample_key(SUBSET, turns, row.get("target"))


def _asked(row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
    requests = _requests(row)
    contexts = tuple(dict.fromkeys(request[0] for request in requests))
    return contexts, tuple(request[1] for request in requests if len(request) > 1)


def _sample(row: Row, sample_id: str, metric: str) -> SampleScore:
    contexts, choices = _asked(row)
    value = row.get(metric)
    score = float(value) if isinstance(value, bool) else finite(value)
    status, detail = SampleStatus.SCORED, ""
    if not _has_response(row.get("resps")):
        status, score, detail = SampleStatus.ERROR, None, "no response in the file"
    elif score is None:
        status, detail = SampleStatus.UNSCORED, f"no value of `{metric}` in the file"
    target = row.get("target")
    return SampleScore(
        sample_id=sample_id,
        subset=SUBSET,
        score=score,
        status=status,
        prompt="\n\n".join((*contexts, *choices[: len(choices) if len(choices) > 1 else 0])),
        target=target if isinstance(target, str) else json.dumps(target),
        answer="" if status is SampleStatus.ERROR else _answer(row, choices),
        detail=detail,
    )


def _has_response(responses: object) -> bool:
    """Return whether there is a response: an empty text is one."""
    if isinstance(responses, list):
        return bool(responses) and not _is_unlikely(responses) and all(_has_response(one) for one in responses)
    return responses is not None and responses != NO_ANSWER


def _is_unlikely(response: Sequence[object]) -> bool:
    """Return whether this is a continuation's log-likelihood, as low as the placeholder for a missing one."""
    return len(response) == 2 and str(response[1]) in {"True", "False"} and _log_likelihood(response) <= NO_LIKELIHOOD


def _answer(row: Row, choices: Sequence[str]) -> str:
    """Return the answer: the generated text, or the most likely continuation."""
    responses = row.get("filtered_resps") or row.get("resps")
    if not isinstance(responses, list) or not responses:
        return ""
    if len(choices) == len(responses) > 1:
        likely = [_log_likelihood(one) for one in responses]
        return choices[likely.index(max(likely))]
    return _first_text(responses[0])


def _log_likelihood(response: object) -> float:
    text = _first_text(response)
    try:
        return float(text)
    except ValueError:
        return float("-inf")


def _first_text(response: object) -> str:
    while isinstance(response, list) and response:
        response = response[0]
    if response is None or isinstance(response, list):
        return ""
    return str(response)
