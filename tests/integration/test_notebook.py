"""The example notebook runs on a project, and what is in the repository was run to its end."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from eval_jobs.queue.database_sql import open_database
from tests.records import RUN, forgetting_run
from tests.requires import PROJECT
from tests.stored import store_run
from tracker.adapters.history.store_sql import SqlHistory

NOTEBOOK = PROJECT / "examples/results.ipynb"
RECORDED = forgetting_run(checkpoints=10, samples=60)


def test_the_notebook_runs_on_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / ".tracker"
    state.mkdir()
    engine = open_database(f"sqlite:///{state}/tracker.db")
    history = SqlHistory(engine, state / "samples")
    store_run(history, RECORDED)
    history.append_stated_points(RUN, RECORDED.curves)
    engine.dispose()
    own = f'[run]\nname = "{RUN}"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
    (tmp_path / "tracker.toml").write_text(own, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))  # no settings of the real home
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_the_notebook_in_the_repository_has_its_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert sum("image/png" in output.get("data", {}) for cell in code for output in cell.outputs) == 3
