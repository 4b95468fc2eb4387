"""The import contracts of pyproject.toml hold, and each one really breaks when it is broken on purpose."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.requires import PROJECT

PACKAGES = ("eval_jobs", "tracker", "dashboards")
CONTRACTS = {
    c["id"]: c["name"]
    for c in tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}

VIOLATIONS = {
    "packages": ("eval_jobs/types.py", "import tracker.domain.records.types"),
    "command-line": ("dashboards/views/heading.py", "import tracker.cli.options"),
    "eval-jobs-layers": ("eval_jobs/probe/latency.py", "import eval_jobs.execute.worker.main"),
    "evaluate-layers": ("eval_jobs/evaluate/data/rows.py", "import eval_jobs.evaluate.lm_eval.results"),
    "serve-layers": ("eval_jobs/serve/weights/fingerprint.py", "import eval_jobs.serve.resident.vllm"),
    "execute-layers": ("eval_jobs/execute/worker/main.py", "import eval_jobs.execute.launch.local"),
    "tracker-layers": ("tracker/domain/records/types.py", "import tracker.app.tick"),
    "domain-layers": ("tracker/domain/scores/summary.py", "import tracker.domain.verdicts.judge"),
    "app-layers": ("tracker/app/steps/collect.py", "import tracker.app.commands.gate"),
    "adapters-layers": ("tracker/adapters/history/store_sql.py", "import tracker.adapters.mlflow.client"),
    "sources-layers": (
        "tracker/adapters/checkpoints/pins/store.py",
        "import tracker.adapters.checkpoints.bucket.client",
    ),
    "cli-layers": ("tracker/cli/options.py", "import tracker.cli.commands.watch"),
    "dashboards-layers": ("dashboards/charts/run.py", "import dashboards.page.html"),
    "siblings": ("tracker/domain/scores/statistics.py", "import tracker.domain.scores.pairing"),
    "processes": ("eval_jobs/evaluate/selection.py", "import eval_jobs.evaluate.evalscope.child.main"),
    "pure": ("tracker/domain/verdicts/judge.py", "import os"),
    "pandas": ("tracker/cli/commands/costs.py", "import pandas"),
    "evalscope": ("tracker/cli/tables/render.py", "import evalscope"),
    "mlflow": ("tracker/config/judging.py", "import mlflow"),
    "sql": ("tracker/cli/commands/history.py", "import sqlalchemy"),
    "alembic": ("eval_jobs/queue/sql_queue.py", "import alembic"),
    "postgresql": ("eval_jobs/queue/database_sql.py", "import psycopg"),
    "engines": ("eval_jobs/serve/resident/vllm.py", "import vllm"),
    "s3": ("tracker/adapters/curves.py", "import s3fs"),
    "apprise": ("tracker/adapters/alerts/opening.py", "import apprise"),
    "watchdog": ("tracker/cli/commands/watch.py", "import watchdog"),
}


def test_every_import_contract_holds() -> None:
    result = _lint(PROJECT)
    assert result.returncode == 0, result.stdout


def test_every_contract_has_a_violation_to_try() -> None:
    assert set(VIOLATIONS) == set(CONTRACTS)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Output of the linter over a copy of the code in which every contract is broken once."""
    copy = tmp_path_factory.mktemp("broken")
    shutil.copy(PROJECT / "pyproject.toml", copy)
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, line in VIOLATIONS.values():
        path = copy / file
        path.write_text(path.read_text().replace("from __future__ import annotations", f"{line}", 1))
    return _lint(copy).stdout


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_contract_notices_its_violation(contract: str, broken: str) -> None:
    assert re.search(rf"^{re.escape(CONTRACTS[contract])} BROKEN", broken, flags=re.MULTILINE), broken


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).parent / "lint-imports"
    return subprocess.run([str(linter), "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)
