"""A report as `--json` prints it. Pure."""

from typing import cast

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from tracker.domain.records.reason_text import latency_reason_text, reason_text
from tracker.domain.records.types import IS_BACK, WORSE, Gap, Report


class HistoryDocument(TypedDict):
    """Result of `tracker history`; the reason of each verdict has a text and a code.

    `newest_of` of a report are the benchmarks that have no later result at its step: only these are shown.
    """

    reports: list[Report]
    gaps: list[Gap]


def report_document(report: Report) -> dict[str, object]:
    """Return a report in which the reason of every verdict is a sentence, next to its code and its fields."""
    document = TypeAdapter(Report).dump_python(report, mode="json")
    sentences = {
        "verdicts": map(reason_text, report.verdicts),
        "findings": map(reason_text, report.findings),
        "latency": map(latency_reason_text, report.latency),
    }
    for part, texts in sentences.items():
        for verdict, text in zip(document[part], texts, strict=True):
            verdict["reason_fields"] = verdict["reason"] or {"code": ""}
            verdict["reason_code"] = verdict["reason_fields"].pop("code")
            if verdict["word"] in WORSE | IS_BACK:
                _say_loss(verdict)
            verdict["reason"] = text
    return cast("dict[str, object]", document)


def _say_loss(verdict: dict[str, dict[str, object]]) -> None:
    """Give the fields of a verdict on a loss the numbers of its sentence, beside those of the test that decided."""
    fields, drop = verdict["reason_fields"], verdict.get("drop")
    if drop and "before" in fields:
        for name in ("before", "now"):
            fields[f"tested_{name}"] = fields[name]
            fields[name] = drop[name]
