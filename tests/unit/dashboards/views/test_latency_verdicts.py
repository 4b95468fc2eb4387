from dataclasses import replace
from datetime import timedelta

from dashboards.views.latency_verdicts import LatencyVerdictRow, LatencyVerdicts, latency_verdicts
from tests.judged_run import judged_run
from tests.records import forgetting_run
from tracker.domain.records.reasons import FewRequests
from tracker.domain.records.types import LatencyMethod, Report, VerdictWord

REPORTS = judged_run().reports


def _found(*reports: Report) -> LatencyVerdicts:
    found = latency_verdicts(reports)
    assert found is not None
    return found


def test_the_newest_checkpoint_shows_every_word_and_earlier_ones_what_changed() -> None:
    found = _found(*REPORTS)
    assert [(r.subject, r.word) for r in found.newest] == [
        ("TTFT p50", "inconclusive"),
        ("TTFT p95", "inconclusive"),
        ("TPOT p50", "regressed"),
        ("TPOT p95", "regressed"),
        ("E2E p50", "inconclusive"),
        ("E2E p95", "inconclusive"),
    ]
    assert [(r.step, r.subject, r.word) for r in found.earlier] == [
        (900, "TPOT p50", "regressed"),
        (900, "TPOT p95", "regressed"),
        (200, "TPOT p50", "suspect"),
        (200, "TPOT p95", "suspect"),
    ]


def test_a_row_has_the_ratio_and_what_it_rests_on() -> None:
    row = _found(*REPORTS).newest[2]
    assert row == LatencyVerdictRow(
        step=1000,
        subject="TPOT p50",
        load="default",
        word=row.word,
        ratio="1.083",
        interval="1.071 to 1.095",
        p="2.2e-09 (slower)",
        level="2.8e-05",
        against="step 100",
        method="reference; mean of 2 ratios",
        reason="8.3 % slower (95 % CI +7.1 % to +9.5 %) than the reference, step 100, "
        "averaged over the newest 2 checkpoints",
    )


def test_a_faster_checkpoint_shows_the_p_of_faster() -> None:
    newest = REPORTS[-1]
    faster = replace(newest.latency[0], ratio=0.9, p_faster=1e-6, word=VerdictWord.IMPROVED, sessions=1)
    row = _found(replace(newest, latency=(faster,))).newest[0]
    assert (row.p, row.method) == ("1.0e-06 (faster)", "reference")


def test_without_a_reference_the_earlier_checkpoints_are_named() -> None:
    newest = REPORTS[-1]
    alone = replace(newest.latency[0], method=LatencyMethod.HISTORY, reference_step=None, sessions=1, learned_from=10)
    row = _found(replace(newest, latency=(alone,))).newest[0]
    assert (row.against, row.method) == ("10 checkpoints", "earlier in this run")


def test_what_was_not_compared_has_no_numbers() -> None:
    newest = REPORTS[-1]
    nothing = replace(
        newest.latency[0], word=VerdictWord.MISSING, ratio=None, ci_low=None, ci_high=None, p_slower=None,
        p_faster=None, reference_step=None,
    )  # fmt: skip
    row = _found(replace(newest, latency=(nothing,))).newest[0]
    assert (row.ratio, row.interval, row.p, row.against) == ("-", "", "-", "-")


def test_what_cannot_be_judged_is_a_sentence_for_each_load_and_no_row() -> None:
    newest = REPORTS[-1]
    few = [
        replace(
            v, reason=FewRequests(needed=100 if v.quantile == 0.5 else 200), method=LatencyMethod.HISTORY, requests=32
        )
        for v in newest.latency
    ]
    found = _found(replace(newest, latency=(*few, replace(few[1], load="long"))))
    assert found.newest == ()
    said = "timed, not judged: 32 requests, {0} required; raise probe.requests to {0}."
    assert found.unjudged == (
        f"p50 and p95 of load default: {said.format(100)}",
        f"p95 of load long: {said.format(200)}",
    )
    half = [one if one.quantile == 0.95 else before for one, before in zip(few, newest.latency, strict=True)]
    mixed = _found(replace(newest, latency=tuple(half)))
    assert [row.subject for row in mixed.newest] == ["TTFT p50", "TPOT p50", "E2E p50"]
    assert mixed.unjudged == (f"p95 of load default: {said.format(200)}",)


def test_a_step_that_was_judged_again_shows_its_newest_verdicts() -> None:
    newest = REPORTS[-1]
    again = replace(newest, latency=newest.latency[:1], created_at=newest.created_at + timedelta(hours=1))
    assert len(_found(again, *REPORTS).newest) == 1


def test_a_run_whose_latency_was_never_judged_shows_nothing() -> None:
    assert latency_verdicts(forgetting_run().reports) is None
