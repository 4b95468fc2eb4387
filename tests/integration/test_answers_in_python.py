"""Comparisons and gates in Python: the numbers of the commands, the samples behind them, and what notebooks show."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib import pyplot

from eval_jobs.errors import ConfigError
from eval_jobs.queue.database_sql import open_database
from tests.records import RUN, forgetting_run
from tests.stored import store_run
from tracker.adapters.history.store_sql import SqlHistory
from tracker.api.formats.html import shown_html
from tracker.api.project import Project
from tracker.api.results import open as open_results
from tracker.api.results import schema
from tracker.cli.commands.to_decide.gate import command as gate_command
from tracker.cli.commands.to_inspect.compare import command as compare_command

RECORDED = forgetting_run(checkpoints=8, samples=60)
OTHER = forgetting_run(run_id="<img onerror=alert(1)>", checkpoints=2, samples=60, trouble=False)
SETTINGS = f"""
[run]
name = "{RUN}"
output_dir = "out"
[tracking]
enabled = false
[policy]
alpha = 0.04
[gate]
alpha = 0.01
[[benchmark]]
benchmark = "gsm8k"
"""
EARLY, LATE = 200, 800


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two runs."""
    folder = tmp_path_factory.mktemp("answers")
    (folder / ".tracker").mkdir()
    engine = open_database(f"sqlite:///{folder}/.tracker/tracker.db")
    history = SqlHistory(engine, folder / ".tracker/samples")
    for recorded in (RECORDED, OTHER):
        store_run(history, recorded)
    engine.dispose()
    (folder / "tracker.toml").write_text(SETTINGS, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def project(folder: Path) -> Project:
    return open_results(folder / "tracker.toml")


def typed(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """Return the frame, which has the types of its table."""
    wanted = schema(table)
    assert list(frame.columns) == wanted["column"].tolist()
    assert [str(kind) for kind in frame.dtypes] == wanted["dtype"].tolist()
    return frame


@pytest.mark.parametrize(("before", "after"), [(EARLY, LATE), (LATE, EARLY)])
def test_a_comparison_has_the_numbers_of_the_command(folder: Path, project: Project, before: int, after: int) -> None:
    arguments = [str(before), str(after), "--json", "--config", str(folder / "tracker.toml")]
    shown = json.loads(CliRunner().invoke(compare_command, arguments, catch_exceptions=False).stdout)["result"]
    numpy_step: Any = np.int64(after)
    found = project.compare(before, numpy_step)
    table = typed(found.table, "comparison").set_index("benchmark")
    assert len(table) == len(shown["benchmarks"]) + len(shown["refused"])
    lost = 0
    for one in shown["benchmarks"]:
        row = table.loc[one["benchmark"]]
        assert (row["word"], row["before"], row["after"]) == (one["word"], one["before"]["mean"], one["after"]["mean"])
        for name in ("delta", "ci_low", "ci_high", "p_worse", "p_better", "n_common", "n_lost", "n_gained"):
            assert row[name] == one["comparison"][name]
        samples = found.lost(one["benchmark"])
        assert len(samples) == one["comparison"]["n_lost"]
        assert (samples["score_after"] < samples["score_before"]).all()
        lost += len(samples)
    assert found.notes[0].startswith("not calibrated: ")
    for one in shown["refused"]:
        assert table.loc[one["benchmark"], "reason"] == "; ".join(one["reasons"])
    assert (lost > 0) == (after == EARLY)
    assert repr(found) == f"Comparison({RUN}@{before} with {RUN}@{after}: {len(table)} benchmarks)"


def test_the_samples_of_a_comparison_have_both_answers(project: Project) -> None:
    frame = project.compare(EARLY, "latest").samples()
    wanted = {}
    for step in (EARLY, LATE):
        samples = project[RUN].samples(steps=step, texts=True).to_pandas()
        wanted[step] = samples.set_index(["benchmark", "sample_id"])
    assert len(frame) == len(wanted[EARLY].index.union(wanted[LATE].index))
    for _, row in frame.iterrows():
        place = (row["benchmark"], row["sample_id"])
        for step, side in ((EARLY, "before"), (LATE, "after")):
            if place in wanted[step].index:
                sample = wanted[step].loc[place]
                assert (row[f"answer_{side}"], row["prompt"]) == (sample["answer"], sample["prompt"])
                assert row[f"score_{side}"] == sample["score"] or pd.isna(sample["score"])
            else:
                assert pd.isna(row[f"status_{side}"])


def test_a_gate_has_the_numbers_of_the_command(folder: Path, project: Project, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[gate]\nmin_effect = 0.3\n[gate.benchmark.facts]\nrequired = false\n", encoding="utf-8")
    words = set()
    for candidate, baseline, own in ((LATE, EARLY, None), (EARLY, LATE, None), ("best", "latest", policy)):
        arguments = [str(candidate), "--baseline", str(baseline), "--format", "json"]
        arguments += ["--config", str(folder / "tracker.toml"), *(("--policy", str(own)) if own else ())]
        ran = CliRunner().invoke(gate_command, arguments, catch_exceptions=False)
        shown = json.loads(ran.stdout)["result"]
        found = project.gate(candidate, baseline=baseline, policy=own)
        words.add(found.word)
        assert (found.word, found.passed) == (shown["word"], shown["word"] == "pass")
        table = typed(found.table, "checks").set_index("check")
        for one in shown["benchmarks"]:
            row = table.loc[one["benchmark"]]
            assert (row["word"], row["required"], row["reason"]) == (one["word"], one["required"], one["reason"])
            assert row["min_effect"] == one["min_effect"] or one["min_effect"] is None
            assert f"{one['benchmark']} ({'required' if one['required'] else 'advisory'}): {one['word']}" in str(found)
        assert found.notes[0].startswith("not calibrated: ")
        assert str(found).endswith("\n".join(found.notes))
    assert len(words) > 1
    assert re.search(r"facts .*; 0\.\d{3} → 0\.\d{3}, .0\.\d{3} \[.*\], p [=<>] ", str(found))
    assert re.match(rf"Gate\(\w+: {RUN}@\d+ against {RUN}@\d+\)$", repr(found))
    with pytest.raises(ConfigError, match=r"a gate is neither true nor false \(hint: use gate.passed"):
        bool(found)


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "no such step": (lambda p: p.compare(EARLY, 7), r"no evaluated checkpoint 7 in run .*evaluated steps: 100"),
    "no such run": (lambda p: p.gate("nope@latest", baseline=EARLY), "no run 'nope'"),
    "a truth value": (lambda p: p.compare(before=True, after=EARLY), "True is not a checkpoint"),
    "a fraction": (lambda p: p.compare(1.5, EARLY), "1.5 is not a checkpoint"),
    "the registry": (lambda p: p.compare("models:/sft@champion", EARLY), "cannot look up models:/sft@champion"),
    "no such benchmark": (lambda p: p.compare(EARLY, LATE).lost("fact"), "no benchmark 'fact'.*did you mean facts"),
    "no location": (lambda p: p.evaluate(600), "600 is no location"),
    "no such policy": (lambda p: p.gate(EARLY, baseline=LATE, policy="no.toml"), "no.toml"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_answered_is_refused(project: Project, case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        call(project)


def test_a_step_alone_needs_its_run(folder: Path) -> None:
    state = open_results(folder / ".tracker")
    with pytest.raises(ConfigError, match=r"missing run of the checkpoint \(hint: use RUN@STEP"):
        state.compare(EARLY, LATE)
    assert len(state[RUN].compare(EARLY, LATE).table) == len(state.compare(f"{RUN}@{EARLY}", f"{RUN}@{LATE}").table)


def test_notebooks_show_words_with_symbols_and_nothing_of_a_name_runs(project: Project) -> None:
    shown = project._repr_html_()
    assert "<img" not in shown
    assert "&lt;img onerror=alert(1)&gt;" in shown
    compared = project.compare(EARLY, LATE)
    html = compared._repr_html_()
    for word in compared.table["word"]:
        assert re.search(rf">\S+ {word}</td>", html), word
    gate = project.gate(LATE, baseline=EARLY)
    assert f"<strong>{gate.word}: {RUN}@{LATE} against {RUN}@{EARLY}" in gate._repr_html_()
    many = pd.DataFrame({"word": ["<b>"] * 70, "score": [0.123456] * 69 + [None]})
    shown = shown_html("<i>", many)
    assert shown.count("&lt;b&gt;") == 50
    assert shown.startswith("<strong>&lt;i&gt;</strong>")
    assert shown.endswith("<em>and 20 rows more</em>")
    assert "0.123<" in shown


def test_plots_show_every_score_its_verdicts_and_the_phases(folder: Path) -> None:
    phases = "".join(f'[[phase]]\nname = "{p.name}"\nfrom_step = {p.from_step}\n' for p in RECORDED.phases)
    (folder / "phases.toml").write_text(SETTINGS + phases, encoding="utf-8")
    project = open_results(folder / "phases.toml")
    own = project[RUN]
    axes = own.plot_scores()
    scores, verdicts = own.scores(), own.verdicts()
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("step", "score", f"Scores: {RUN}")
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert {"facts", "reversal", "sums", "▲ improved", "? missing"} <= set(labels)
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    for benchmark, same in scores.groupby("benchmark", observed=True):
        np.testing.assert_array_equal(lines[str(benchmark)].get_ydata(), same["score"].to_numpy())
    marked = sum(len(np.asarray(line.get_xdata())) for line in axes.get_lines() if line.get_linestyle() == "None")
    words = ["forgotten", "regressed", "suspect", "recovered", "improved", "missing", "incomparable"]
    assert marked == len(verdicts[verdicts["word"].isin(words)])
    assert [text.get_text().strip() for text in axes.texts] == [phase.name for phase in RECORDED.phases]
    matrix = own.plot_forgetting()
    drawn, wanted = matrix.collections[0].get_array(), own.forgetting_matrix().to_numpy()
    assert drawn is not None
    np.testing.assert_array_equal(np.ma.filled(drawn, np.nan).reshape(wanted.shape), wanted)
    latency = own.plot_latency(ax=axes)
    assert latency is axes
    assert latency.get_ylabel() == "time to the first token, ms"
    with pytest.raises(ConfigError, match="a matrix is of one run, and there are 2"):
        project.plot_forgetting()
    pyplot.close("all")
