"""Why a verdict has its word: kept as a code with numbers, worded where it is shown."""

from dataclasses import replace
from typing import get_args

from tests.judged_run import judged_run
from tests.outlines import stored_outline
from tests.unit.tracker.domain.judging import followed, run_of
from tracker.adapters.database.codec import from_json, to_json
from tracker.cli.tables.report_json import report_document
from tracker.domain.records.policy import Policy
from tracker.domain.records.reason_text import latency_reason_text, reason_text
from tracker.domain.records.reasons import (
    AgainstHistory,
    AgainstReference,
    Compared,
    ComparedMeans,
    Difference,
    Disruption,
    Failed,
    Fall,
    FewInCommon,
    FewRequests,
    FewSamples,
    FewScores,
    LatencyReason,
    MeasuredOtherwise,
    NeverAboveChance,
    NoScatter,
    NothingEarlier,
    NotOfAScore,
    Reason,
    ShortHistory,
    Together,
    TooEarly,
)
from tracker.domain.records.types import Report, VerdictWord

REPORT = judged_run().reports[-1]
REASONS: tuple[Reason, ...] = (
    Failed(message="the server went away", error="E-EVAL-ENDPOINT"),
    FewScores(with_score=80, planned=100, errors=20, unscored=0, needed=0.95, detail="too long"),
    NothingEarlier(),
    TooEarly(),
    MeasuredOtherwise(step=5, differences=(Difference(setting="few_shot", now="0", before="5"),)),
    FewInCommon(samples=180, share=0.9, needed=0.95),
    FewSamples(samples=5, needed=10),
    Compared(before=0.5, now=0.4, margin=0.01),
    ComparedMeans(
        before=0.6,
        now=0.4,
        pooled=4,
        baseline_steps=(1, 2),
        is_peak=True,
        ci_low=-0.3,
        ci_high=-0.1,
        p=0.01,
        never_above_chance=True,
    ),
    Together(
        falls=(Fall(benchmark="sums", change=-0.05),),
        compared=4,
        steps=(500,),
        p=1e-6,
        expected_after=Disruption(step=450, what="restart of the learning rate"),
    ),
    NeverAboveChance(chance=0.25),
    NotOfAScore(problem="a mean is outside [0, 1]"),
)
LATENCY: tuple[LatencyReason, ...] = (
    Failed(),
    FewRequests(needed=100),
    NoScatter(),
    ShortHistory(needed=10),
    AgainstReference(learning=5),
    AgainstHistory(checkpoints=10),
)


def test_every_reason_is_stored_and_read_as_it_was() -> None:
    assert {type(one) for one in REASONS} == set(get_args(Reason))
    assert {type(one) for one in LATENCY} == set(get_args(LatencyReason))
    report = replace(
        REPORT,
        verdicts=tuple(replace(REPORT.verdicts[0], reason=one) for one in REASONS),
        latency=tuple(replace(REPORT.latency[0], reason=one, without_reference=Failed()) for one in LATENCY),
    )
    assert from_json(Report, to_json(report)) == report
    assert len({one.code for one in (*REASONS, *LATENCY)}) == len({*map(type, REASONS), *map(type, LATENCY)})


def test_no_sentence_is_stored() -> None:
    stored = to_json(REPORT)
    sentences = [*map(reason_text, REPORT.verdicts), *map(latency_reason_text, REPORT.latency)]
    assert [text for text in sentences if not text or text in stored] == []


def test_what_a_script_reads_has_the_sentence_the_code_and_the_numbers() -> None:
    document = report_document(REPORT)
    for part, texts in {
        "verdicts": map(reason_text, REPORT.verdicts),
        "findings": map(reason_text, REPORT.findings),
        "latency": map(latency_reason_text, REPORT.latency),
    }.items():
        shown = document[part]
        assert isinstance(shown, list)
        assert [one["reason"] for one in shown] == list(texts)
        assert {one["reason_code"] for one in shown} == {"against-reference" if part == "latency" else "compared"}
    assert isinstance(document["findings"], list)
    assert document["findings"][0]["reason_fields"] == {"before": 0.51, "now": 0.4, "margin": 0.01, "in_a_row": 3} | {
        "expected_after": None
    }


def test_an_outline_has_only_the_reason_of_what_is_missing() -> None:
    outline = stored_outline(REPORT)
    assert {v.word for v in outline.verdicts if reason_text(v)} <= {VerdictWord.MISSING}
    missing = replace(REPORT.verdicts[0], word=VerdictWord.MISSING, reason=Failed(message="gone", error="E-X"))
    (kept,) = stored_outline(replace(REPORT, verdicts=(missing,))).verdicts
    assert reason_text(kept) == "no result: gone (E-X)"


def test_the_numbers_of_a_loss_are_those_of_its_sentence_beside_those_that_were_tested() -> None:
    newest = followed(run_of(*[178] * 5, 184, *[60] * 4), Policy(planned_checkpoints=20))[-1]
    document = report_document(newest)
    assert isinstance(document["verdicts"], list)
    (verdict,), drop = document["verdicts"], newest.verdicts[0].drop
    assert drop is not None
    tested = newest.verdicts[0].reason
    assert isinstance(tested, Compared)
    fields = verdict["reason_fields"]
    assert (fields["before"], fields["now"]) == (drop.before, drop.now)
    assert (fields["tested_before"], fields["tested_now"]) == (tested.before, tested.now)
    assert (fields["tested_before"], fields["tested_now"]) != (drop.before, drop.now)
