import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.unit.tracker.cli.gate_reports import HOSTILE, answer, passed, with_text
from tracker.cli.gate.table import gate_table
from tracker.domain.gate.types import GateReport


def shown(report: GateReport, *, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(gate_table(report))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_an_answer_fits_a_terminal_of_80_columns() -> None:
    assert (
        shown(answer()).split("\n    prompt question 1")[0]
        == """\
REGRESSION  run@200 against run@100: decided by sums

                                    change, 95 % CI
check               scores       one-sided p, level  lost/gained  result
────────────────────────────────────────────────────────────────────────────────
absent                                                            ? missing
required
sums         0.900 → 0.840  −0.060 [−0.075, −0.045]         60/0  ▼ regression
required          n = 1000    p < 1e-12, level 0.01
few          0.400 → 0.400  ±0.000 [−0.053, +0.053]          0/0  ~ inconclusive
required            n = 50     p = 0.5, level 0.013
same         0.900 → 0.900  ±0.000 [−0.003, +0.003]          0/0  ✓ pass
required          n = 1000     p = 0.5, level 0.013
broken                                                            ? missing
required
style        0.900 → 0.840  −0.060 [−0.075, −0.045]         60/0  ▼ regression
advisory          n = 1000    p < 1e-12, level 0.05
ttft p95,                                                         ? missing
load
default
advisory
absent: not evaluated on either side
sums: loss of 0.060 (60 samples lost, 0 gained)
few: minimum detectable loss 0.084; `min_effect` 0.045 would have passed, or
about 2,287 samples would decide, 50 available
same: no loss of 0.010 or more
broken: no result at step 200: vLLM ended while loading /pins/7 (E-SERVE-DIED)
style: loss of 0.060 (60 samples lost, 0 gained)
ttft p95, load default: no latency measured under load default
not calibrated: sums, few, same and style (run `tracker calibrate`)
p and 95 % CI from samples alone: the noise between checkpoints is unknown
(sums, few, same and style)
family-wise error rate 0.05 over the required benchmarks (Holm correction)

sums, lost samples:
    prompt question 0
  expected target 0
    before answer 1.0
     after answer 0.0
"""  # noqa: RUF001 - true minus signs
    )


def test_with_room_the_reasons_stand_beside_the_numbers() -> None:
    wide = shown(answer(), width=120)
    (row,) = [line for line in wide.splitlines() if line.startswith("same ")]
    assert row.endswith("0/0  ✓ pass          no loss of 0.010 or more")
    assert "same: no loss" not in wide


@pytest.mark.parametrize("width", [40, 60, 75])
def test_a_narrow_terminal_shows_every_check_with_its_name_and_its_numbers(width: int) -> None:
    report = answer()
    text = " ".join(shown(report, width=width).split())
    assert "\u2026" not in text
    for check in report.benchmarks:
        assert f"{check.benchmark} ({'required' if check.required else 'advisory'}): " in text
    assert "same (required): \u2713 pass no loss of 0.010 or more 0.900 \u2192 0.900, n = 1000" in text


def test_the_answer_names_what_decides_it() -> None:
    assert shown(passed()).startswith("PASS  run@200 against run@100: passed 1 required check\n")
    nothing = replace(passed(), benchmarks=())
    assert "nothing was measured and no check is required" in " ".join(shown(nothing).split())
    advisory = replace(passed(), benchmarks=tuple(replace(b, required=False) for b in passed().benchmarks))
    assert "every check is advisory (required = false)" in " ".join(shown(advisory).split())


def test_sides_of_the_same_name_are_told_apart_by_their_digests() -> None:
    report = passed()
    again = replace(report, baseline=replace(report.candidate, digest="e" * 64))
    assert "run@200:d200 against run@200:eeeeeeee" in shown(again)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_model_cannot_disturb_the_terminal(hostile: str, width: int) -> None:
    text = shown(with_text(hostile), width=width)
    assert not any(char in text for char in "\x1b\x00\r\u202e\ud83d\x85")
    assert all(len(line) <= width for line in text.splitlines())
    assert len(text) < 60_000
    assert text.encode()
    assert "(not kept)" in text
