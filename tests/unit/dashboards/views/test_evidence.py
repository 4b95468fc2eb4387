from dataclasses import replace

from dashboards.views.evidence import EvidenceView, ProofView, evidence, onset_text
from tests.judged_run import judged_run
from tests.records import forgetting_run
from tracker.domain.overview.run import overview
from tracker.domain.overview.standings import standings
from tracker.domain.records.types import Verdict, VerdictWord


def _cases() -> dict[str, EvidenceView]:
    view = overview(judged_run().reports)
    return {case.benchmark: case for case in evidence(view, standings(view))}


def _newest(benchmark: str) -> Verdict:
    return next(v for v in forgetting_run().reports[-1].verdicts if v.benchmark == benchmark)


def _case(verdict: Verdict) -> EvidenceView:
    view = overview([replace(forgetting_run().reports[-1], verdicts=(verdict,))])
    return evidence(view, standings(view))[0]


def test_the_deciding_comparison_has_what_a_doubter_asks_for() -> None:
    assert _cases()["facts"].proofs[0] == ProofView(
        against="peak, step 600",
        chosen="best of 9 blocks",
        newest="step 1000",
        pooled="",
        delta="−0.875",  # noqa: RUF001 - a true minus sign
        interval="−0.948 to −0.802",  # noqa: RUF001
        flips="70 / 0",
        common="of 80",
        p="< 1e-12 (worse)",
        p_items="samples only < 1e-12",
        level="8.3e-05",
        jitter="0.40",
    )


def test_a_pooled_side_and_a_block_say_how_many_checkpoints_they_are_the_mean_of() -> None:
    proof = _cases()["trivia"].proofs[0]
    assert (proof.against, proof.chosen) == ("peak, steps 410 to 500", "mean of 10, best of 12 blocks")
    assert (proof.newest, proof.pooled) == ("steps 700 to 1000", "mean of 4")
    assert (proof.p, proof.p_items) == ("3.1e-07 (worse)", "samples only 4.4e-09")
    assert (proof.level, proof.jitter) == ("2.5e-06", "0.62")


def test_only_the_comparison_that_decided_was_held_to_the_level() -> None:
    assert [(p.against, p.level) for p in _cases()["sums"].proofs] == [
        ("peak, step 600", "8.3e-05"),
        ("recent, step 900", ""),
    ]


def test_a_gain_shows_the_p_of_a_gain() -> None:
    proof = _cases()["reversal"].proofs[0]
    assert (proof.p, proof.p_items) == ("0.077 (better)", "")


def test_an_unknown_jitter_is_no_number() -> None:
    facts = _newest("facts")
    still = replace(facts, comparisons=tuple(replace(c, jitter=0.0) for c in facts.comparisons))
    assert _case(still).proofs[0].jitter == "-"


def test_a_loss_says_since_when() -> None:
    assert _cases()["facts"].notes == ("lost since step 700",)
    assert _cases()["trivia"].notes == ("had been lost since step 400",)
    hidden = replace(_newest("facts"), word=VerdictWord.SUSPECT, lost_since=700)
    assert onset_text(hidden) == "loss since step 700 is still open"


def test_what_is_inconclusive_says_what_could_not_have_been_seen() -> None:
    assert _cases()["reversal"].notes == ("minimum detectable loss of the mean of four checkpoints: 0.048",)
    alone = _case(replace(_newest("reversal"), mde_pooled=None))
    assert alone.notes == ()


def test_a_score_of_part_of_the_samples_says_so() -> None:
    assert _case(replace(_newest("facts"), coverage=0.975)).score == "0.037 (97 % scored)"
