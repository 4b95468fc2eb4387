import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.records import RecordedRun, forgetting_run, scores_of_run
from tracker.cli.tables.forgetting import ledger_tables
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.texts import with_texts
from tracker.domain.forgetting.types import LostTexts, RunLedger
from tracker.domain.records.policy import Policy

RUN = forgetting_run()


def ledger_of(run: RecordedRun, *, details: int = 1) -> RunLedger:
    ledger = run_ledger(scores_of_run(run), Policy(phases=run.phases), details=details)
    records = {r.plan.id: r for r in run.records}
    return with_texts(ledger, lambda plan_id, _: records.get(plan_id))


LEDGER = ledger_of(RUN)


def shown(ledger: RunLedger, *, subsets: int = 5, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(ledger_tables(ledger, subsets=subsets))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_the_ledger_fits_a_terminal_of_80_columns() -> None:
    assert (
        shown(LEDGER).split("\nsums: 39")[0]
        == """\
tiny-forgetting  10 scored checkpoints, steps 100 to 1000
                                         change,                  lost      by
benchmark   best    steps    now         95 % CI  retained  lost   now  chance
──────────────────────────────────────────────────────────────────────────────
facts      0.875  500-600  0.050  −0.825 ± 0.079       0 %    62    64     0.3
sums       0.550  600-700  0.075  −0.475 ± 0.090       8 %    39    45     0.3
reversal   0.575  700-800  0.975  +0.400 ± 0.064     100 %     0     0     0.6
facts: not all samples scored: step 400 (97 %)

facts and sums, learned in phase skills: −0.700 (95 % CI −0.763 to −0.637) since
its end; 3 % retained
backward transfer: −0.700 (95 % CI −0.763 to −0.637)

facts: 62 lost samples, 64 now (0.3 expected by chance), mostly correct at steps
500 to 600 and mostly incorrect at steps 900 to 1000
    prompt What colour is the robepu?
  expected red
     ✓ 600 red
    ✗ 1000 upebor
   history learned at 300, forgotten at 800
and 61 more (use --samples or --json)
"""  # noqa: RUF001 - true minus signs
    )


def test_subsets_stand_below_their_benchmark_and_the_rest_is_counted() -> None:
    facts = LEDGER.benchmarks[0]
    rows = tuple(replace(facts.whole, subset=f"subject {i}") for i in range(8))
    text = shown(replace(LEDGER, benchmarks=(replace(facts, subsets=rows),)), subsets=2)
    assert "\n  subject 1" in text
    assert "subject 2" not in text
    assert "\n  +6 more" in text
    assert "subject" not in shown(replace(LEDGER, benchmarks=(replace(facts, subsets=rows),)), subsets=0)


def test_checkpoints_that_do_not_count_are_named() -> None:
    facts = replace(LEDGER.benchmarks[0], measured_otherwise=(100, 200), passed_over=(300,))
    text = shown(replace(LEDGER, benchmarks=(facts,)))
    assert "facts: measured differently from the newest checkpoint, not counted: step 100\nand step 200\n" in text
    assert "facts: screened only, or scored on too few samples, not counted: step 300" in text


def test_a_short_run_says_why_there_is_no_ledger_yet() -> None:
    text = shown(ledger_of(replace(RUN, records=RUN.records[:3])))
    assert "facts: too few checkpoints or samples to measure forgetting" in text
    assert "nan" not in text


def test_a_run_without_scores_says_so() -> None:
    assert shown(ledger_of(replace(RUN, records=()))) == "tiny-forgetting: not enough scores yet"


def test_a_run_with_too_few_scores_names_them() -> None:
    facts = replace(LEDGER.benchmarks[0], steps=(), passed_over=(100,))
    text = shown(replace(LEDGER, steps=(), benchmarks=(facts,)))
    assert "tiny-forgetting: not enough scores yet" in text
    assert "facts: screened only, or scored on too few samples, not counted: step 100" in text


@pytest.mark.parametrize("hostile", ["\x1b[31mred\x1b[0m", "[bold]x[/bold]", "a\nb\rc", "\u202egnp.exe", "\ud83d"])
def test_text_of_a_model_cannot_disturb_the_terminal(hostile: str) -> None:
    texts = LostTexts(
        prompt=hostile,
        target=hostile,
        answer_before=hostile,
        right_before=True,
        answer_after=hostile,
        right_after=False,
    )
    facts = LEDGER.benchmarks[0]
    detail = replace(facts.details[0], texts=texts)
    phase = replace(LEDGER.transfers[0], phase=hostile)
    one = replace(
        facts,
        benchmark=f"facts{hostile}",
        details=(detail, replace(detail, texts=None, sample_id=hostile)),
        subsets=(replace(facts.whole, subset=hostile), facts.whole),
    )
    text = shown(replace(LEDGER, run_id=hostile, benchmarks=(one,), transfers=(phase,)), width=120)
    assert not any(char in text for char in "\x1b\r\u202e\ud83d")
    assert text.encode()
    if hostile.startswith("["):
        assert text.count(hostile) >= 8  # shown as it is, not taken for markup
    assert "(text not kept)" in text


def test_an_interval_that_ends_at_1_has_both_its_ends() -> None:
    facts = LEDGER.benchmarks[0]
    found = facts.whole.forgetting
    assert found is not None
    at_end = replace(facts, whole=replace(facts.whole, forgetting=replace(found, ci_low=0.6, ci_high=1.0)))
    assert "−1.000 to −0.600" in shown(replace(LEDGER, benchmarks=(at_end,)))  # noqa: RUF001 - a true minus sign
