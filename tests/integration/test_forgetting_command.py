"""`tracker forgetting` over a real history on disk, as a person calls it."""

import json
from pathlib import Path

import pytest

from tests.commands import run_tracker
from tests.records import FORGETTING_TOML, forgetting_run
from tracker.api.opening import open_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tracker.toml").write_text(FORGETTING_TOML, encoding="utf-8")
    history = open_project(folder / "tracker.toml").history
    for record in forgetting_run().records:
        history.append(record)
    return folder


def test_the_summary_names_what_was_forgotten_and_shows_lost_questions(project: Path) -> None:
    done = run_tracker(project, "forgetting")
    assert (done.stderr, done.returncode) == ("", 0)
    assert "\x1b" not in done.stdout  # plain text when piped
    facts = next(line for line in done.stdout.splitlines() if line.startswith("facts "))
    assert facts.split() == ["facts", "0.875", "500-600", "0.050", "−0.825", "±", "0.079", "5", "%", "62", "64", "0.3"]  # noqa: RUF001
    assert "facts and sums, learned in phase skills: −0.700" in done.stdout  # noqa: RUF001
    assert done.stdout.count("What colour is the") == 3
    assert "✓ 600" in done.stdout
    assert "✗ 1000" in done.stdout


def test_more_samples_or_none_can_be_asked_for(project: Path) -> None:
    assert (
        run_tracker(project, "forgetting", "tiny-forgetting", "--samples", "0").stdout.count("What colour is the") == 0
    )
    assert run_tracker(project, "forgetting", "--samples", "5").stdout.count("What colour is the") == 5


def test_as_json_it_holds_every_lost_sample_and_the_texts_of_the_first(project: Path) -> None:
    document = json.loads(run_tracker(project, "forgetting", "--json", "--samples", "1").stdout)["result"]
    facts = document["benchmarks"][0]
    assert (facts["benchmark"], len(facts["lost"]), len(facts["details"])) == ("facts", 62, 1)
    assert facts["details"][0]["texts"]["prompt"].startswith("What colour is the")
    assert facts["whole"]["forgetting"]["forgetting"] == pytest.approx(0.825)
    assert document["backward_transfer"]["benchmarks"] == ["facts", "sums"]


def test_an_unknown_run_is_a_usage_error_that_names_the_known_ones(project: Path) -> None:
    done = run_tracker(project, "forgetting", "nope")
    assert done.returncode == 2
    assert "known runs: tiny-forgetting" in done.stderr


def test_a_project_without_results_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tracker.toml").write_text(FORGETTING_TOML, encoding="utf-8")
    done = run_tracker(tmp_path, "forgetting")
    assert done.returncode == 2
    assert "no evaluated checkpoints yet" in done.stderr
