"""EvalScope's files -> sample scores. Pure: rows in, records out.

    planned      one row per question and repeat, written by the child before any request is sent
    predictions  one row per answer
    reviews      one row per scored answer
    failures     one row per question that could not be answered or scored, with the reason

Rules (what EvalScope calls "success" is not enough: it scores a context overflow as a wrong answer):
    scored     answered, ended by the model, and the metric is a finite number
    truncated  the same, but the answer was truncated at max_tokens: it counts with its score
    unscored   answered, and the metric failed
    error      no valid answer: context overflow, rejected, filtered, aborted, never requested
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval_jobs.host.bounded.json_text import parse_json
from eval_jobs.host.bounded.replies import token_count
from eval_jobs.identity import numbered, sample_key
from eval_jobs.spending import known_sum
from eval_jobs.types import SampleScore, SampleStatus

Row = Mapping[str, object]
Place = tuple[str, int]
"""Subset and index of a sample in EvalScope. For joining files of one run, never for pairing runs."""

USABLE_STATUS = (None, "success", "degraded")
METRIC_NAMES = {"acc": "accuracy"}
DETAIL_CHARS = 500
_LONGEST_ANSWER_S = 1e6


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One planned question, once per repeat."""

    subset: str
    index: int
    repeat: int
    messages: tuple[tuple[str, str], ...]
    """(role, text) of the prompt."""
    target: str | tuple[str, ...]
    cluster: str = ""

    @property
    def key(self) -> str:
        """Content key without the occurrence number."""
        asked = [m for m in self.messages if m[0] in ("system", "user")]
        target = self.target if isinstance(self.target, str) else list(self.target)
        return sample_key(self.subset, asked, target)


def parse_lines(lines: Iterable[str]) -> tuple[Row, ...]:
    """Return the JSON objects of a JSONL file; a line truncated by a kill is left out."""
    rows = []
    for line in lines:
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return tuple(rows)


def planned_sample(row: Row) -> Planned:
    """Read a row of the planned file."""
    target = row["target"]
    messages = row["messages"]
    assert isinstance(messages, list)  # noqa: S101 - our own child wrote it
    return Planned(
        subset=str(row["subset"]),
        index=_integer(row["index"]),
        repeat=_integer(row["repeat"]),
        messages=tuple((str(role), str(text)) for role, text in messages),
        target=tuple(map(str, target)) if isinstance(target, list) else str(target),
        cluster=str(row.get("cluster") or ""),
    )


def by_place(subset: str, rows: Iterable[Row]) -> dict[Place, Row]:
    """Index the rows of one subset's file; the last row of an index wins, as after a resume."""
    return {(subset, _integer(row["index"])): row for row in rows if isinstance(row.get("index"), int)}


def parse_samples(
    planned: Sequence[Planned],
    predictions: Mapping[Place, Row],
    reviews: Mapping[Place, Row],
    failures: Mapping[Place, str],
) -> tuple[SampleScore, ...]:
    """Return one score for every planned sample, in the order of `planned`."""
    scores = []
    for sample, sample_id in zip(planned, _sample_ids(planned), strict=True):
        place = (sample.subset, sample.index)
        prediction = predictions.get(place)
        status, score, detail = _judge(prediction, reviews.get(place), failures.get(place, ""))
        scores.append(
            SampleScore(
                sample_id=sample_id,
                subset=sample.subset,
                repeat=sample.repeat,
                score=score,
                status=status,
                cluster_id=sample.cluster,
                prompt=_prompt_text(sample.messages),
                target=sample.target if isinstance(sample.target, str) else " | ".join(sample.target),
                answer="" if status is SampleStatus.ERROR else _answer(prediction),
                output_tokens=_tokens(prediction, "output_tokens"),
                answer_ms=_answer_ms(prediction),
                detail=detail[:DETAIL_CHARS],
            )
        )
    return tuple(scores)


def metric_name(reviews: Iterable[Row], default: str) -> str:
    """Return the most frequent main metric of the reviews, or `default` if there are none."""
    names = Counter(name for review in reviews if (name := _main_score(_score(review))[0]))
    found = names.most_common(1)[0][0] if names else default
    return METRIC_NAMES.get(found, found)


def token_sum(predictions: Iterable[Row], kind: str) -> int | None:
    """Return the sum over all answers of `input_tokens` or `output_tokens`; None if the server reported none."""
    return known_sum(_tokens(row, kind) for row in predictions)


def _sample_ids(planned: Sequence[Planned]) -> tuple[str, ...]:
    """Number equal questions per repeat, in index order, so that every repeat of one question has the same id."""
    order = sorted(range(len(planned)), key=lambda i: (planned[i].repeat, planned[i].subset, planned[i].index))
    ids = [""] * len(planned)
    for repeat in {sample.repeat for sample in planned}:
        members = [i for i in order if planned[i].repeat == repeat]
        for i, sample_id in zip(members, numbered(planned[i].key for i in members), strict=True):
            ids[i] = sample_id
    return tuple(ids)


def _judge(prediction: Row | None, review: Row | None, failure: str) -> tuple[SampleStatus, float | None, str]:
    if prediction is None:
        return SampleStatus.ERROR, None, failure or "no response"
    reason = str(_choice(prediction).get("stop_reason") or "missing")
    if reason not in ("stop", "max_tokens", "tool_calls"):
        return SampleStatus.ERROR, None, _why_no_answer(prediction, reason)
    score, detail = _number(review, failure)
    if score is None:
        return SampleStatus.UNSCORED, None, detail
    if reason == "max_tokens":
        return SampleStatus.TRUNCATED, score, "answer truncated at max_tokens"
    return SampleStatus.SCORED, score, ""


def _complaint(score: Row, metadata: Row) -> str:
    if metadata.get("metric_errors"):
        return f"the metric failed: {metadata['metric_errors']}"
    if score.get("status") not in USABLE_STATUS:
        return f"the scorer reported {score['status']}: {score.get('explanation') or metadata or ''}"
    return ""


def _number(review: Row | None, failure: str) -> tuple[float | None, str]:
    """Return the score, or None and why there is none."""
    if review is None:
        return None, failure or "the scorer returned no result"
    score = _score(review)
    complaint = _complaint(score, _mapping(score.get("metadata")))
    if complaint:
        return None, complaint
    name, value = _main_score(score)
    if not isinstance(value, int | float):
        return None, f"the scorer returned no value for {name or 'its metric'}"
    if not math.isfinite(value):
        return None, f"the score is {value}"
    return float(value), ""


def _prompt_text(messages: Sequence[tuple[str, str]]) -> str:
    if len(messages) == 1:
        return messages[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in messages)


def _output(prediction: Row | None) -> Row:
    if prediction is not None:
        return _mapping(prediction.get("model_output"))
    return {}


def _choice(prediction: Row | None) -> Row:
    choices = _output(prediction).get("choices")
    if isinstance(choices, list) and choices:
        return _mapping(choices[0])
    return {}


def _why_no_answer(prediction: Row, reason: str) -> str:
    if reason == "model_length":  # EvalScope stores the server's error as the answer
        return f"the prompt exceeds the context length: {_answer(prediction)}"
    if reason == "content_filter":
        return "the server filtered the answer"
    return f"unexpected stop reason {reason} {_output(prediction).get('error') or ''}".strip()


def _answer(prediction: Row | None) -> str:
    content = _mapping(_choice(prediction).get("message")).get("content")
    if isinstance(content, list):  # reasoning and text as separate parts
        content = "".join(str(_mapping(part).get("text") or "") for part in content)
    return str(content or "")


def _tokens(prediction: Row | None, kind: str) -> int | None:
    return token_count(_mapping(_output(prediction).get("usage")).get(kind))


def _answer_ms(prediction: Row | None) -> int | None:
    seconds = _output(prediction).get("time")
    if isinstance(seconds, float) and 0 <= seconds < _LONGEST_ANSWER_S:
        return round(1000 * seconds)
    return None


def _score(review: Row) -> Row:
    return _mapping(_mapping(review.get("sample_score")).get("score"))


def _main_score(score: Row) -> tuple[str, object]:
    """Return name and value of the main score; the first score if none is named, as EvalScope does."""
    values = _mapping(score.get("value"))
    named = str(score.get("main_score_name") or "")
    if named:
        return named, values.get(named)
    return next(iter(values.items()), ("", None))


def _mapping(value: object) -> Row:
    if isinstance(value, dict):
        return value
    return {}


def _integer(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected an integer, got {value!r}")
    return value
