import re
from dataclasses import replace

import pytest

from dashboards.charts.heatmap import MAX_COLUMNS, heat_rows, shade_of
from tests.records import forgetting_run, scores_of_run, wide_run
from tracker.domain.forgetting.ledger import run_ledger
from tracker.domain.forgetting.types import BenchmarkLedger, RunLedger
from tracker.domain.records.policy import Phase, Policy

RUN = forgetting_run()
LEDGER = run_ledger(scores_of_run(RUN), Policy(phases=RUN.phases), details=0)
FACTS, SUMS, REVERSAL = heat_rows(LEDGER)


def kinds(strip: str) -> dict[int, str]:
    """Return the class of every column."""
    found = re.findall(r'<path class="(none|best|[ab]\d)" d="M(\d+) [.\d]+h(\d+)', strip)
    return {at: kind for kind, start, count in found for at in range(int(start), int(start) + int(count))}


def with_row(name: str, **changes: object) -> RunLedger:
    benchmark = next(b for b in LEDGER.benchmarks if b.benchmark == name)
    changed: BenchmarkLedger = replace(benchmark, **changes)  # type: ignore[arg-type]
    return replace(LEDGER, benchmarks=(changed,))


def test_a_row_says_where_a_benchmark_stands() -> None:
    assert [(r.name, r.now, r.change, r.lost) for r in (FACTS, SUMS, REVERSAL)] == [
        ("facts", "0.050", "−0.825", True),  # noqa: RUF001
        ("sums", "0.075", "−0.475", True),  # noqa: RUF001
        ("reversal", "0.975", "+0.400", False),
    ]


def test_what_is_still_to_learn_is_told_apart_from_what_was_lost() -> None:
    assert list(kinds(FACTS.strip).values()) == ["b6", "b6", "b6", "b5", "b2", "best", "a6", "a6", "a6", "a6"]
    assert set(kinds(REVERSAL.strip).values()) == {"b6", "b5", "best"}


def test_a_checkpoint_without_a_score_has_no_colour() -> None:
    assert kinds(SUMS.strip)[2] == "none"
    assert "step 300: no score" in SUMS.strip


def test_the_best_block_is_framed_and_the_phase_has_a_border() -> None:
    assert '<path class="peak" d="M4 0H6V1H4z"/>' in FACTS.strip
    assert '<path class="border" d="M6 0v1"/>' in FACTS.strip  # the checkpoint at 600 belongs to the phase before


def test_who_cannot_see_it_is_told() -> None:
    assert (
        "below its later best at steps 100 to 500: 0.037 to 0.838; at its best at step 600: 0.912; "
        "lost at steps 700 to 1000: 0.438 to 0.037</desc>"
    ) in FACTS.strip


@pytest.mark.slow
def test_neighbouring_checkpoints_of_a_long_run_share_a_column() -> None:
    run = wide_run(checkpoints=201, benchmarks=4, samples=10)
    rows = heat_rows(run_ledger(scores_of_run(run), Policy(phases=run.phases), details=0))
    assert all(len(kinds(row.strip)) == 67 <= MAX_COLUMNS for row in rows)


def test_subsets_are_rows_of_their_own() -> None:
    whole = LEDGER.benchmarks[0].whole
    (row,) = heat_rows(with_row("facts", subsets=(replace(whole, subset="easy"), replace(whole, subset="hard"))))
    assert [s.name for s in row.subsets] == ["easy", "hard"]
    idents = re.findall(r'id="([^"]+)"', "".join([row.strip, *(s.strip for s in row.subsets)]))
    assert len(set(idents)) == 3


def test_scores_that_are_no_shares_are_shaded_by_their_range() -> None:
    benchmark = LEDGER.benchmarks[0]
    means = tuple(None if mean is None else 30 * mean for mean in benchmark.whole.means)
    (row,) = heat_rows(with_row("facts", whole=replace(benchmark.whole, means=means, forgetting=None)))
    assert list(kinds(row.strip).values())[:2] == ["b6", "b6"]
    assert kinds(row.strip)[5] == "best"


def test_where_lower_is_better_the_lowest_is_the_best() -> None:
    benchmark = LEDGER.benchmarks[0]
    means = tuple(None if mean is None else 1 - mean for mean in benchmark.whole.means)
    whole = replace(benchmark.whole, means=means, forgetting=None)
    (row,) = heat_rows(with_row("facts", whole=whole, higher_is_better=False))
    assert kinds(row.strip)[5] == "best"


def test_names_are_escaped() -> None:
    hostile = replace(LEDGER, phases=(Phase(name="<b>", from_step=0),))
    assert "<b>" not in "".join(row.strip for row in heat_rows(hostile))


def test_a_run_without_scores_has_no_rows() -> None:
    assert heat_rows(run_ledger(scores_of_run(replace(RUN, records=())), Policy(), details=0)) == ()


@pytest.mark.parametrize(
    ("depth", "shade"), [(-0.3, 0), (0.0, 0), (0.01, 0), (0.011, 1), (0.05, 2), (0.3, 5), (0.41, 6), (1.0, 6)]
)
def test_colour_changes_with_the_distance_to_the_best(depth: float, shade: int) -> None:
    assert shade_of(depth) == shade
