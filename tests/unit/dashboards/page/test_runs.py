"""The page that shows several runs side by side."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dashboards.page.command import report
from dashboards.page.html import render_runs
from dashboards.page.run import MAX_RUNS, write_runs_report
from dashboards.views.runs import build_runs_view
from eval_jobs.errors import ConfigError
from tests.compared_runs import project_of_two_runs, to_compare, two_runs
from tests.reports import MADE_AT
from tests.unit.tracker.domain.judging import run_of
from tracker.domain.compare.runs import compare_runs

QUICK, SLOW = map(to_compare, two_runs())
HOSTILE = "<script>alert(1)</script>\x1b{{ 7 * 7 }}"


def named(name: str) -> str:
    """Return the page of two runs, the second one with another name."""
    other = replace(SLOW, scores=replace(SLOW.scores, run_id=name))
    return render_runs(build_runs_view([compare_runs(QUICK, other, min_coverage=0.95)], MADE_AT), version="0.1.0")


def test_runs_of_a_project_become_one_page_without_a_script(tmp_path: Path) -> None:
    config = project_of_two_runs(tmp_path)
    done = CliRunner().invoke(report, ["tiny-forgetting", "slower", "--config", str(config)])
    assert done.exit_code == 0, done.output
    path = Path(done.stdout.strip())
    assert (path.parent, path.name[:22]) == (tmp_path / ".tracker" / "reports", "tiny-forgetting-slower")
    html = path.read_text(encoding="utf-8")
    assert "<title>slower compared with tiny-forgetting</title>" in html
    assert "<script" not in html
    facts = html[html.index('id="benchmark-1"') : html.index('id="benchmark-2"')]
    assert 'class="line s0"' in facts
    assert 'class="line s1"' in facts
    assert facts.count('class="band s') == 4  # two runs, on wide and on narrow screens
    for cells in (
        '600</th><td class="num">0.900<',
        'num diff">\u22120.125<small class="below">',
        'best</th><td class="num">0.900',
    ):
        assert cells in facts
    assert "TTFT median, load default" in html
    assert "GPU time" in html


def test_a_third_run_is_compared_with_the_first_and_keeps_its_colour() -> None:
    third = replace(QUICK, scores=replace(QUICK.scores, run_id="third"))
    view = build_runs_view([compare_runs(QUICK, one, min_coverage=0.95) for one in (SLOW, third)], MADE_AT)
    facts = view.benchmarks[0]
    assert facts.runs == view.runs == ("tiny-forgetting", "slower", "third")
    assert [line.slot for line in facts.figure.panels[0].lines] == [0, 1, 2]
    first, _, _, last, difference = facts.rows[-1].cells
    assert (last, difference.text) == (first, "±0.000")


def test_long_tables_are_folded_and_what_cannot_be_compared_is_named() -> None:
    long = to_compare(run_of(*[9] * 50))
    view = build_runs_view([compare_runs(long, replace(long), min_coverage=0.95)], MADE_AT)
    assert view.benchmarks[0].is_folded
    none = build_runs_view([compare_runs(long, SLOW, min_coverage=0.95)], MADE_AT)
    assert none.benchmarks == ()
    assert "cannot compare facts: no samples with a score in run" in none.remarks
    assert "cannot compare facts" in render_runs(none, version="0.1.0")


def test_the_name_of_a_run_is_text_and_nothing_else() -> None:
    html = named(HOSTILE)
    assert "&lt;script&gt;alert(1)" in html
    assert "<script" not in html
    assert "{{ 7 * 7 }}" in html
    assert "\x1b" not in html


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("slower", "nope"), "no run 'nope'"),
        (("slower", "slower"), "a run cannot be compared with itself"),
        (tuple(map(str, range(MAX_RUNS + 1))), "9 runs in one report"),
    ],
)
def test_what_is_not_a_few_runs_is_a_usage_error(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write_runs_report(project_of_two_runs(tmp_path), names, None)


def test_reports_of_all_checkpoints_are_of_one_run() -> None:
    done = CliRunner().invoke(report, ["a", "b", "--checkpoints"])
    assert (done.exit_code, "--checkpoints takes one run" in done.output) == (2, True)
