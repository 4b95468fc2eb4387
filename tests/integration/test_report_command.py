"""`tracker report` over a real history on disk, as a person calls it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run_tracker
from tests.records import FORGETTING_TOML, forgetting_run
from tests.stored import store_run
from tracker.api.opening import open_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tracker.toml").write_text(FORGETTING_TOML, encoding="utf-8")
    history = open_project(folder / "tracker.toml").history
    run = forgetting_run()
    store_run(history, run)
    return folder


def test_the_report_is_written_into_the_state_folder_and_its_path_is_printed(project: Path) -> None:
    done = run_tracker(project, "report")
    assert done.stderr == ""
    assert done.returncode == 0
    path = Path(done.stdout.strip())
    assert path == project / ".tracker" / "reports" / "tiny-forgetting.html"
    html = path.read_text(encoding="utf-8")
    assert "facts and sums were forgotten after step 600; reversal improved earlier." in html
    assert "What colour is the" in html  # texts of samples come from disk
    assert "reversal only" in html  # phases come from tracker.toml


def test_a_named_run_and_another_place(project: Path, tmp_path: Path) -> None:
    done = run_tracker(project, "report", "tiny-forgetting", "--output", str(tmp_path / "new" / "r.html"))
    assert done.stdout == f"{tmp_path / 'new' / 'r.html'}\n"
    assert (tmp_path / "new" / "r.html").stat().st_size > 50_000


def test_a_checkpoint_has_a_page_of_its_own_and_the_run_links_to_it(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    run_page = folder / "tiny-forgetting.html"
    alone = run_tracker(project, "report", "700", "--output", str(folder / "alone.html"))
    assert alone.returncode == 0, alone.stderr
    assert "Report of the run" not in (folder / "alone.html").read_text(encoding="utf-8")
    run_tracker(project, "report", "--output", str(run_page))
    done = run_tracker(project, "report", "tiny-forgetting@700")
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.strip())
    assert path.name.startswith("tiny-forgetting@700-")
    beside = folder / path.name
    assert run_tracker(project, "report", "tiny-forgetting@700", "--output", str(beside)).returncode == 0
    html = beside.read_text(encoding="utf-8")
    assert '<a href="tiny-forgetting.html">Report of the run</a>' in html
    assert "✗ Incorrect at step 700" in html  # texts of both checkpoints come from disk
    run_tracker(project, "report", "--output", str(run_page))
    assert f'<a href="{path.name}">700</a>' in run_page.read_text(encoding="utf-8")


def test_the_pages_of_a_run_and_of_all_its_checkpoints_link_to_each_other(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "to send"
    done = run_tracker(project, "report", "--checkpoints", "--output", str(folder / "run #1.html"))
    assert (done.stdout, done.stderr) == (f"{folder / 'run #1.html'}\n", "")
    pages = {path.name for path in folder.iterdir()} - {"run #1.html"}
    of_run = (folder / "run #1.html").read_text(encoding="utf-8")
    assert len(pages) == 10
    assert {name for name in pages if f'href="{name}"' in of_run} == pages
    assert all(
        '<a href="run%20%231.html">Report of the run</a>' in (folder / name).read_text(encoding="utf-8")
        for name in pages
    )


def test_all_pages_of_one_checkpoint_are_a_usage_error(project: Path) -> None:
    done = run_tracker(project, "report", "700", "--checkpoints")
    assert done.returncode == 2
    assert "--checkpoints requires a run, but 700 is a checkpoint" in done.stderr


@pytest.mark.parametrize("name", ["latest", "best", "best:facts", "tiny-forgetting@best"])
def test_every_name_of_a_checkpoint_is_taken(project: Path, tmp_path: Path, name: str) -> None:
    done = run_tracker(project, "report", name, "--output", str(tmp_path / "page.html"))
    assert done.stderr == ""
    step = "1000" if name == "latest" else "600"
    assert f"<title>tiny-forgetting, step {step}: " in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_step_that_was_not_evaluated_is_a_usage_error_that_names_the_others(project: Path) -> None:
    done = run_tracker(project, "report", "650")
    assert done.returncode == 2
    assert "no evaluated checkpoint 650 in run tiny-forgetting" in done.stderr
    assert "evaluated steps: 100, 200" in done.stderr


def test_an_unknown_run_is_a_usage_error_that_names_the_known_ones(project: Path) -> None:
    done = run_tracker(project, "report", "nope")
    assert done.returncode == 2
    assert "no run 'nope'" in done.stderr
    assert "known runs: tiny-forgetting" in done.stderr


def test_a_place_that_cannot_be_written_is_an_infrastructure_error(project: Path) -> None:
    done = run_tracker(project, "report", "--output", "/proc/nowhere/r.html")
    assert done.returncode == 4
    assert "cannot write /proc/nowhere/r.html" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_written_into_a_checkpoint_also_through_a_link(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project / "out" / "checkpoint-700")
    for name in ("out/checkpoint-700/r.html", str(tmp_path / "link" / "r.html")):
        done = run_tracker(project, "report", "--output", name)
        assert done.returncode == 2
        assert f"{name} is inside a checkpoint of the trainer" in done.stderr
    assert not (project / "out").exists()


def test_standard_output_gets_the_page_alone(project: Path) -> None:
    done = run_tracker(project, "report", "--output", "/dev/stdout")
    assert (done.returncode, done.stderr) == (0, "/dev/stdout\n")
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.endswith("</html>")


def test_a_project_without_results_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML, encoding="utf-8")
    done = run_tracker(tmp_path, "report")
    assert done.returncode == 2
    assert "no evaluated checkpoints yet" in done.stderr
    assert "tracker watch" in done.stderr


def test_listing_the_command_imports_none_of_what_it_needs() -> None:
    heavy = ("jinja2", "pydantic", "sqlalchemy")
    code = f"import sys, dashboards.page.command; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
