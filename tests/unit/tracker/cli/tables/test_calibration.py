"""What `tracker calibrate` prints, and what stands behind verdicts afterwards."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from textwrap import dedent

from rich.console import Console, RenderableType

from eval_jobs.types import BenchmarkFailure
from tests.records import forgetting_run
from tracker.cli.tables.calibration import calibration_table, repetitions
from tracker.cli.tables.render import report_lines
from tracker.domain.records.calibration import AskedTwice, Calibration

AT = datetime(2026, 3, 14, 12, 0, tzinfo=UTC)
RUN = forgetting_run(trouble=False)


def asked(benchmark: str, n: int, flips: int, **changes: float) -> AskedTwice:
    found = AskedTwice(
        benchmark=benchmark, fingerprint="f", planned=n, samples=n, flips=flips, other_texts=7, squares=float(flips),
        largest=1.0, first_mean=0.5, second_mean=0.5, p_shift=1.0,
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


CALIBRATION = Calibration(
    plan=RUN.records[0].plan,
    engine=RUN.records[0].engine,
    benchmarks=(
        asked("facts", 500, 0),
        asked("sums", 500, 60),
        asked("reversal", 100, 1),
        asked("moved", 1000, 30, second_mean=0.47, p_shift=1e-9),
    ),
    failures=(
        BenchmarkFailure(
            benchmark="\x1b[2Jodd\nname", fingerprint="g", code="E-EVAL-ENDPOINT", message="the server went\naway",
            hint="see its log", retryable=True,
        ),
    ),
    started_at=AT,
    finished_at=AT,
)  # fmt: skip
BY_NAME = {one.benchmark: one for one in repetitions(CALIBRATION, 0.01)}
REPORT = replace(
    RUN.reports[-1],
    verdicts=tuple(replace(v, repetition=BY_NAME[v.benchmark]) for v in RUN.reports[-1].verdicts),
    latency=(),
)


def shown(*parts: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=110, force_terminal=False)
    console.print(*parts, sep="\n")
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_every_benchmark_has_a_line_and_what_follows_stands_below() -> None:
    assert shown(calibration_table(CALIBRATION, min_effect=0.01)) == dedent(
        """\
                                       flips    same score,           noise,
        benchmark   samples          95 % CI   text differs       95 % bound
        ─────────────────────────────────────────────────────────────────────────────
        facts           500                0              7           ±0.000   fit
                              0.0 % to 0.7 %                  at most ±0.008
        sums            500               60              7           ±0.030   unfit
                               9.3 % to 15 %                  at most ±0.034
        reversal        100                1              7           ±0.020   unsure
                              0.0 % to 5.4 %                  at most ±0.046
        moved          1000               30              7           ±0.059   unfit
                              2.0 % to 4.3 %                  at most ±0.059
        \ufffd[2Jodd name not calibrated: the server went away [E-EVAL-ENDPOINT]
          hint: see its log

        moved: the mean of the second pass is shifted by −0.030, more than the flips explain; something changed
        between the passes
        sums is too noisy: repeated evaluations differ by ±0.030, more than policy.min_effect 0.01
        moved is too noisy: repeated evaluations differ by 0.030 on average, more than policy.min_effect 0.01
          hint: use more samples, more repeats or temperature 0, or raise policy.min_effect
        unsure: not enough samples; inconclusive verdicts show the minimum detectable loss
        verdicts, comparisons and reports now show this noise beside every difference"""  # noqa: RUF001 - a true minus sign
    )


def test_where_nothing_was_measured_only_the_reasons_stand() -> None:
    lines = shown(calibration_table(replace(CALIBRATION, benchmarks=()), min_effect=0.01)).splitlines()
    assert [line.strip() for line in lines] == [
        "\ufffd[2Jodd name not calibrated: the server went away [E-EVAL-ENDPOINT]",
        "hint: see its log",
    ]


def test_a_judged_checkpoint_says_behind_each_difference_what_repetition_does() -> None:
    said = " ".join(shown(*report_lines(REPORT)).split())
    assert (
        "below the peak at 3 checkpoints in a row; lost since step 700 (no flips between repeated evaluations)" in said
    )
    assert "(minimum detectable loss 0.084) (run-to-run noise ±0.020)" in said
    assert said.count("is too noisy") == 1
    without = shown(*report_lines(RUN.reports[-1]))
    assert not any(word in without for word in ("repeated evaluations", "run-to-run noise", "noisy"))
