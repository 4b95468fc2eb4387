from dataclasses import replace

import pytest

from tests.records import forgetting_run, scores_of_run
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.sample_lives import Event, SampleEvent
from tracker.domain.forgetting.wording import chance_text, events_text, life_text, notes, transfer_sentences
from tracker.domain.records.display import span_text
from tracker.domain.records.policy import Policy

RUN = forgetting_run()
LEDGER = run_ledger(scores_of_run(RUN), Policy(phases=RUN.phases), details=1)


@pytest.mark.parametrize(("expected", "text"), [(0.0, "0.0"), (0.27, "0.3"), (9.94, "9.9"), (42.13, "42")])
def test_what_chance_gives_is_rounded(expected: float, text: str) -> None:
    assert chance_text(expected) == text


def test_phases_are_told_and_the_whole_is_last() -> None:
    assert [s.split(":")[0] for s in transfer_sentences(LEDGER)] == [
        "facts and sums, learned in phase skills",
        "backward transfer",
    ]
    one = LEDGER.transfers[0]
    first = replace(one, phase=None, transfer=replace(one.transfer, retention=0.125))
    (sentence,) = transfer_sentences(replace(LEDGER, transfers=(first,), backward_transfer=None))
    assert sentence.startswith("facts and sums: ")
    assert sentence.endswith(" since the first measurement; 12 % retained")


def test_what_does_not_count_is_named() -> None:
    facts = LEDGER.benchmarks[0]
    assert notes(facts) == ("facts: not all samples scored: step 400 (97 %)",)
    assert notes(replace(facts, coverage=(1.0,) * len(facts.steps))) == ()
    other = replace(facts, coverage=(), measured_otherwise=(100, 200), whole=replace(facts.whole, forgetting=None))
    assert notes(other) == (
        "facts: measured differently from the newest checkpoint, not counted: step 100 and step 200",
        "facts: too few checkpoints or samples to measure forgetting",
    )


def test_retention_without_a_floor_asks_for_chance() -> None:
    facts = LEDGER.benchmarks[0]
    assert facts.whole.forgetting is not None
    best_at_first = replace(facts.whole.forgetting, peak=replace(facts.whole.forgetting.peak, first_step=100))
    facts = replace(facts, coverage=(), whole=replace(facts.whole, forgetting=best_at_first))
    assert notes(facts) == (
        "facts: retention unknown, because it was best at first: set `chance` in its [[benchmark]]",
    )
    assert notes(replace(facts, chance=0.25)) == ()


def test_only_the_newest_of_many_changes_are_told() -> None:
    events = [Event(step=s, change=SampleEvent.FORGOTTEN if s % 2 else SampleEvent.RELEARNED) for s in range(9)]
    assert events_text(events[:2]) == "relearned at 0, forgotten at 1"
    assert events_text(events).startswith("3 earlier changes, forgotten at 3, relearned at 4")
    assert events_text(events[:7]).startswith("1 earlier change, ")


def test_a_life_is_told_in_stretches() -> None:
    sample = replace(LEDGER.benchmarks[0].details[0], right=(False, None, True, True, False))
    life = life_text(sample.right, (1, 2, 3, 4, 5))
    assert life == "incorrect at 1, no score at 2, correct at 3 to 4, incorrect at 5"
    assert span_text((7, 8, 9)) == "7 to 9"


def test_a_long_life_is_told_from_its_end() -> None:
    sample = replace(LEDGER.benchmarks[0].details[0], right=(False, True) * 5)
    told = life_text(sample.right, tuple(range(10)))
    assert told.startswith("4 earlier changes, incorrect at 4, correct at 5")
    assert told.endswith("incorrect at 8, correct at 9")
