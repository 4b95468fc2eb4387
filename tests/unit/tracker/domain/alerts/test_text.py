"""What people read when something is wrong, and when it is over."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.alert_messages import EVIDENCE, HOSTILE, alert, huge, message_of, ordinary, resolved
from tracker.domain.alerts.text import (
    MAX_QUESTIONS,
    AlertLines,
    Markup,
    Room,
    block,
    blocks_text,
    bytes_long,
    entry_of,
    message_text,
)
from tracker.domain.records.alerts import AlertEvidence, AlertKind, AlertState, AlertSubject, SubjectKind

PLAIN = Markup(escape=str, bold=str, quote=lambda text: f"> {text}", code=str)


def _lines(entry: AlertLines) -> list[str]:
    """Return one entry as plain lines."""
    markup = Markup(escape=str, bold=str, quote=lambda text: f"  {text}", code=lambda text: f"  {text}")
    return block(entry, markup).split("\n")


def test_the_title_names_run_step_and_what_happened() -> None:
    assert message_text(ordinary()).title == "run-a step 600: sums regressed"


def test_the_title_counts_what_else_happened() -> None:
    message = message_of(alert(1), alert(2, subject="capitals"), alert(3, subject="logic"))
    assert message_text(message).title == "run-a step 600: sums regressed (and 2 more)"


def test_a_loss_is_shown_with_its_interval_its_counts_its_questions_and_the_next_command() -> None:
    assert _lines(entry_of(alert())) == [
        "Firing: sums regressed",
        "sums regressed at step 600: 0.790 -> 0.580",
        "change: −0.210 (95 % CI −0.310 to −0.110; positive is better)",  # noqa: RUF001 - as it is shown
        "score: 0.580",
        "compared with: steps 100 to 500",
        "samples: 25 lost, 4 gained of 100 paired samples",
        "since: 2026-02-01 12:30 UTC",
        "  tracker compare run-a 500 600",
        "Examples of lost samples",
        "  What is 17 + 25?",
        "  What is 8 * 7?",
    ]


def test_a_slower_checkpoint_is_shown_in_times_and_requests() -> None:
    evidence = AlertEvidence(change=1.42, ci_low=1.31, ci_high=1.55, is_ratio=True, n_common=64, baseline_steps=(500,))
    subject = AlertSubject(kind=SubjectKind.LATENCY, name="default")
    slower = replace(alert(kind=AlertKind.LATENCY, evidence=evidence), subject=subject)
    lines = _lines(entry_of(slower))
    assert lines[0] == "Firing: latency, load default: slower"
    assert "change: 1.420x (95 % CI 1.310x to 1.550x)" in lines
    assert "requests: 64 on each side" in lines


def test_what_is_over_says_since_when_and_shows_no_number_that_is_not_known() -> None:
    text = message_text(resolved())
    assert not text.is_firing
    assert _lines(text.entries[0]) == [
        "Resolved: sums: loss closed",
        "sums recovered at step 700",
        "resolved at: 2026-02-01 12:30 UTC",
        "  tracker compare run-a 500 600",
    ]


@pytest.mark.parametrize("kind", AlertKind)
@pytest.mark.parametrize("state", AlertState)
def test_every_kind_has_words_of_its_own_for_both_states(kind: AlertKind, state: AlertState) -> None:
    other = AlertState.RESOLVED if state is AlertState.FIRING else AlertState.FIRING
    headline = entry_of(alert(kind=kind, state=state)).headline
    assert headline
    assert headline != entry_of(alert(kind=kind, state=other)).headline
    assert "{" not in headline


@given(st.text(st.characters(exclude_categories=()), max_size=900))
def test_foreign_text_becomes_single_lines_of_bounded_length_that_can_be_encoded(foreign: str) -> None:
    evidence = replace(EVIDENCE, lost_samples=(foreign,) * 9)
    message = message_of(
        alert(subject=foreign, message=foreign, run_id=foreign, command=foreign, evidence=evidence), link=foreign
    )
    text = message_text(message)
    entry = text.entries[0]
    assert len(entry.lost) == MAX_QUESTIONS
    for line in (text.title, text.link, entry.headline, entry.sentence, entry.command, *entry.lost):
        assert line.encode().decode() == line
        assert len(line.splitlines()) <= 1
        assert len(line) <= 640


def test_braces_in_a_name_are_only_braces() -> None:
    assert entry_of(alert(subject="{subject} {0}")).headline == "{subject} {0} regressed"


def test_a_command_that_is_too_long_is_left_out_and_never_cut() -> None:
    assert entry_of(alert(command="tracker compare " + "x" * 500)).command == ""


def test_all_is_shown_where_there_is_room() -> None:
    text = message_text(message_of(alert(1), alert(2)))
    blocks = blocks_text(text, PLAIN, Room(total=4000))
    assert ["> What is 17 + 25?" in block for block in blocks] == [True, True]


def test_each_entry_is_named_before_one_is_shown_in_full() -> None:
    text = message_text(message_of(*(alert(n, subject=f"part-{n}") for n in range(9))))
    blocks = blocks_text(text, PLAIN, Room(total=1000))
    assert [f"part-{n} regressed" in block for n, block in enumerate(blocks)] == [True] * 9
    assert ["change" in block for block in blocks] == [True, *[False] * 8]


@pytest.mark.parametrize("character", ["x", "错", "😀"])
@pytest.mark.parametrize("limit", [2000, 3500, 20_000])
def test_bytes_are_counted_and_what_has_no_room_is_counted_too(character: str, limit: int) -> None:
    text = message_text(huge(character))
    blocks = blocks_text(text, PLAIN, Room(total=limit, size=bytes_long))
    assert sum(map(bytes_long, blocks)) <= limit
    left_out = int(blocks[-1].removeprefix("and ").removesuffix(" more"))
    assert left_out == 60 - (len(blocks) - 1)
    assert len(blocks) > 1


def test_an_entry_that_is_too_long_for_one_block_is_shown_shortly_and_blocks_are_counted() -> None:
    text = message_text(message_of(alert(1, message="x" * 600), *(alert(n) for n in range(2, 9))))
    blocks = blocks_text(text, PLAIN, Room(total=40_000, each=500, count=4))
    assert [len(block) <= 500 for block in blocks] == [True] * 5
    assert ["change" in block for block in blocks] == [False, True, True, True, False]
    assert blocks[-1] == "and 4 more"


def test_hostile_text_is_still_readable() -> None:
    sentence = entry_of(alert(message=HOSTILE)).sentence
    assert "错误😀" in sentence
    assert "\x1b" not in sentence
