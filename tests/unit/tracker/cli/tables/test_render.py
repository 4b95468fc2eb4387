import io
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from tests.judged_run import judged_run
from tests.records import forgetting_run, outlined, wide_run
from tracker.cli.tables.comparison import comparison_table
from tracker.cli.tables.render import STYLES, gaps_table, history_table, report_lines
from tracker.domain.compare.view import RunNoise, compare_parts
from tracker.domain.records.policy import Policy
from tracker.domain.records.reasons import Failed
from tracker.domain.records.types import Report, VerdictWord

RUN = forgetting_run()


def shown(*parts: RenderableType, width: int = 80, colour: bool = False) -> str:
    console = Console(
        width=width, file=io.StringIO(), force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(*parts, sep="\n")
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def test_a_history_fits_a_terminal_of_80_columns() -> None:
    assert (
        shown(history_table(RUN.reports))
        == """\
tiny-forgetting  10 checkpoints, steps 100 to 1000
step   facts                      sums                    reversal
───────────────────────────────────────────────────────────────────────────────
 100   0.037 ·  first             0.013 ·  first          0.025 ·  first
 200   0.075 ~  inconclusive      0.050 ~  inconclusive   0.013 ~  inconclusive
 300   0.275 ▲  improved              - ?  missing        0.000 ~  inconclusive
 400   0.628 ▲  improved (97 %)   0.338 ▲  improved       0.013 ~  inconclusive
 500   0.838 ▲  improved          0.600 ▲  improved       0.000 ~  inconclusive
 600   0.912 ~  inconclusive      0.700 ~  inconclusive   0.050 ~  inconclusive
 700   0.438 ▼  regressed         0.400 ▼  regressed      0.263 ▲  improved
 800   0.163 ▼  regressed         0.175 ▼  regressed      0.887 ▲  improved
 900   0.062 ▼▼ forgotten         0.113 ▼▼ forgotten      0.963 ~  inconclusive
1000   0.037 ▼▼ forgotten         0.037 ▼▼ forgotten      0.988 ~  inconclusive
(percentages): share of samples with a score, if below 100 %
missing: sums at step 300: no result: the server went away after 31 of 80
samples of checkpoint 300 (E-EVAL-ENDPOINT)

facts and sums were forgotten after step 600; reversal improved earlier.
"""
    )


def test_older_steps_are_counted_and_the_sentence_is_about_the_whole_run() -> None:
    assert (
        shown(history_table(RUN.reports, last=2), gaps_table((*RUN.gaps, *RUN.gaps), last=1))
        == """\
tiny-forgetting  10 checkpoints, steps 100 to 1000
… 8 earlier steps: --last 0 shows all
step   facts                sums                 reversal
──────────────────────────────────────────────────────────────────────
 900   0.062 ▼▼ forgotten   0.113 ▼▼ forgotten   0.963 ~  inconclusive
1000   0.037 ▼▼ forgotten   0.037 ▼▼ forgotten   0.988 ~  inconclusive

facts and sums were forgotten after step 600; reversal improved earlier.

… 1 earlier checkpoint: --last 0 shows all
"""
        + shown(gaps_table(RUN.gaps))[1:]
    )


@pytest.mark.slow
def test_a_history_of_outlines_is_that_of_whole_reports() -> None:
    for run in (RUN, judged_run(), wide_run(checkpoints=12, benchmarks=6)):
        for count in range(1, len(run.reports) + 1):
            reports = run.reports[:count]
            for width in (40, 120):
                assert shown(history_table(outlined(reports)), width=width) == shown(
                    history_table(reports), width=width
                )


def test_a_narrow_terminal_gets_symbols_and_what_they_mean() -> None:
    assert (
        shown(history_table(RUN.reports[-4:]), width=60)
        == """\
tiny-forgetting  4 checkpoints, steps 700 to 1000
step   facts      sums       reversal
─────────────────────────────────────
 700   0.438 ▼    0.400 ▼    0.263 ▲
 800   0.163 ▼    0.175 ▼    0.887 ▲
 900   0.062 ▼▼   0.113 ▼▼   0.963 ~
1000   0.037 ▼▼   0.037 ▼▼   0.988 ~

▼▼ forgotten  ▼ regressed  ▲ improved  ~ inconclusive

facts and sums were forgotten after step 600; reversal
improved earlier.
"""
    )


def test_a_very_narrow_terminal_gets_one_table_below_the_other() -> None:
    assert (
        shown(history_table(RUN.reports[-2:]), width=30)
        == """\
tiny-forgetting  2
checkpoints, steps 900 to 1000
step   facts      sums
──────────────────────────
 900   0.062 ▼▼   0.113 ▼▼
1000   0.037 ▼▼   0.037 ▼▼

step   reversal
───────────────
 900   0.963 ~
1000   0.988 ~

▼▼ forgotten  ~ inconclusive

facts and sums were forgotten
after step 600; no significant
change in reversal
(inconclusive).
"""
    )


def test_fifty_benchmarks_are_all_shown_within_the_width() -> None:
    run = wide_run(checkpoints=3, benchmarks=50, samples=4)
    text = shown(history_table(run.reports), width=100)
    assert all(name in text for name in (v.benchmark for v in run.reports[0].verdicts))
    assert max(map(len, text.splitlines())) <= 100


def test_an_empty_history_says_so() -> None:
    assert shown(history_table(())) == "no results yet\n"


def test_gaps_say_why_and_what_to_do() -> None:
    assert (
        shown(gaps_table(RUN.gaps))
        == """\

not evaluated   reason                           hint
────────────────────────────────────────────────────────────────────────────────
          550   it was deleted before it could   raise save_total_limit, or
                be pinned [E-CKPT-VANISHED]      lower watch.interval_s
"""
    )
    several = [replace(RUN.gaps[0], step=step) for step in (550, 650, 750)]
    text = shown(gaps_table([*several, replace(RUN.gaps[0], step=850, message="another reason")]))
    assert re.findall(r"^ *(\d.*?)   ", text, re.MULTILINE) == ["550 to 750 (3)", "850"]


def test_a_report_has_one_line_per_benchmark() -> None:
    assert (
        shown(*report_lines(RUN.reports[3]), width=120)
        == """\
evaluated step 400
          facts     0.628  ▲  improved (97 % scored)  0.27 at step 300 -> 0.63; lost 0 of 78 samples, gained 28
          sums      0.338  ▲  improved  0.05 at step 200 -> 0.34; lost 0 of 80 samples, gained 23
          reversal  0.013  ~  inconclusive  (minimum detectable loss 0.084)
"""
    )


def test_a_loss_says_in_the_report_since_when_it_lasts() -> None:
    said = shown(*report_lines(RUN.reports[-1]), width=200)
    assert "below the peak at 3 checkpoints in a row; lost since step 700\n" in said


def test_findings_of_the_newest_checkpoint_stand_under_the_history() -> None:
    text = shown(history_table(judged_run().reports[-2:]), width=120)
    assert text.endswith(
        """\

findings at step 1000:
trivia / history     ▼▼ forgotten  since step 600
sums, output length  ▼  regressed  since step 700

facts and sums were forgotten after step 600; trivia / history was forgotten since step 600; and 3 other findings.
"""
    )
    assert "findings at" not in shown(history_table([*judged_run().reports, replace(RUN.reports[-1], step=1100)]))


def test_noise_that_leaves_the_simulated_range_stands_under_the_history() -> None:
    text = shown(history_table(judged_run().reports), width=200)
    assert "\nThe error rate was not shown for this noise between checkpoints, so false alarms may be more" in text
    assert "The error rate" not in shown(history_table(RUN.reports), width=200)


def test_many_findings_are_counted() -> None:
    newest = judged_run().reports[-1]
    many = tuple(replace(newest.findings[0], subset=f"s{i}") for i in range(12))
    text = shown(history_table([replace(newest, findings=many)]), width=120)
    assert "trivia / s9  ▼▼ forgotten  since step 600\nand 2 more (see `tracker report`)\n" in text


def test_a_failed_benchmark_has_a_reason_and_no_score() -> None:
    assert "sums          -  ?  missing  no result: the server went away" in shown(*report_lines(RUN.reports[2]))


def test_a_history_says_why_results_are_missing_one_line_for_each_error() -> None:
    def failed(step: int, code: str) -> Report:
        gone = Failed(message=f"broken at {step}", error=code)
        missing = (
            replace(v, word=VerdictWord.MISSING, score=None, coverage=0, reason=gone) for v in RUN.reports[0].verdicts
        )
        return replace(RUN.reports[0], step=step, plan_id=str(step), verdicts=tuple(missing))

    reports = (failed(100, "E-A"), failed(200, "E-B"), failed(300, "E-A"))
    text = shown(history_table(outlined(reports)), width=120)
    assert [line for line in text.splitlines() if line.startswith("missing: ")] == [
        "missing: facts at step 300 and 5 more: no result: broken at 300 (E-A)",
        "missing: facts at step 200 and 2 more: no result: broken at 200 (E-B)",
    ]
    assert "broken" not in shown(history_table(RUN.reports[3:]))


def test_a_checkpoint_without_a_score_is_called_failed() -> None:
    newest = RUN.reports[-1]
    none = tuple(replace(v, word=VerdictWord.MISSING, score=None) for v in newest.verdicts)
    assert shown(*report_lines(replace(newest, verdicts=none))).startswith("   failed step 1000")
    assert shown(*report_lines(replace(newest, verdicts=(none[0], *newest.verdicts[1:])))).startswith("evaluated step")


def test_a_comparison_shows_both_scores_and_samples_that_changed() -> None:
    view = compare_parts([(RUN.records[2], RUN.records[3])], Policy(), RunNoise(), examples=1)
    assert (
        shown(comparison_table(view))
        == """\
tiny-forgetting  step 400 compared with step 300
                                  change, 95 % CI
benchmark         scores              one-sided p  lost/gained  verdict
──────────────────────────────────────────────────────────────────────────────
facts      0.275 → 0.628  +0.359 [+0.240, +0.460]         0/28  ▲ improved
            100 % → 97 %     p = 1.9e-09 (better)
reversal   0.000 → 0.013  +0.013 [−0.029, +0.054]          0/1  ~ inconclusive
                  n = 80        p = 0.25 (better)
percentages: share of samples with a score
not calibrated: facts and reversal (run `tracker calibrate`)
p and 95 % CI from samples alone: the noise between checkpoints is unknown
(facts and reversal)
cannot compare sums: no result at step 300: the server went away after 31 of 80
samples of checkpoint 300 (E-EVAL-ENDPOINT)

facts, gained samples:
    prompt What colour is the moseto?
  expected black
    before otesom
     after black

reversal, gained samples:
    prompt Reverse: disi
  expected isid
    before disi
     after isid
"""  # noqa: RUF001 - a true minus sign
    )


def test_checkpoints_of_two_runs_are_told_apart() -> None:
    other = forgetting_run(run_id="other", trouble=False)
    view = compare_parts([(RUN.records[5], other.records[9])], Policy(), RunNoise(), examples=0)
    assert shown(comparison_table(view)).startswith("other step 1000 compared with tiny-forgetting step 600\n")


def test_foreign_text_can_neither_style_nor_control_the_terminal() -> None:
    report = RUN.reports[-1]
    hostile = replace(
        report.verdicts[0],
        benchmark="[red]\x1b[31mfacts\x07",
        reason=Failed(message="[/]\x1b]0;title\x07\nline", error="E-X"),
    )
    text = shown(
        history_table([replace(report, run_id="\x1b[2J[bold]run", verdicts=(hostile,))]),
        *report_lines(replace(report, verdicts=(hostile,))),
        gaps_table([replace(RUN.gaps[0], message="[link]\x1b[1m", hint="\x9b1m")]),
        width=120,
    )
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "\x07" not in text
    assert "[red]" in text
    assert "[bold]run" in text


def test_verdicts_are_coloured_in_a_terminal_and_plain_where_redirected() -> None:
    assert "\x1b[1;31m▼▼ forgotten\x1b[0m" in shown(history_table(RUN.reports), colour=True)
    assert "\x1b" not in shown(history_table(RUN.reports))


def test_every_verdict_has_a_style() -> None:
    assert set(STYLES) == set(VerdictWord)
