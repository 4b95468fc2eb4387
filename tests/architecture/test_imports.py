"""The import contracts of pyproject.toml hold, and each one really breaks when it is broken on purpose."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

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
    "cli-layers": ("tracker/cli/options.py", "import tracker.cli.commands.to_watch.watch"),
    "dashboards-layers": ("dashboards/charts/run.py", "import dashboards.page.html"),
    "siblings": ("tracker/domain/scores/statistics/paired.py", "import tracker.domain.scores.pairing"),
    "processes": ("eval_jobs/evaluate/selection.py", "import eval_jobs.evaluate.evalscope.child.main"),
    "pure": ("tracker/domain/verdicts/judge.py", "import os"),
    "pandas": ("tracker/cli/commands/to_inspect/costs.py", "import pandas"),
    "evalscope": ("tracker/cli/tables/render.py", "import evalscope"),
    "mlflow": ("tracker/config/judging.py", "import mlflow"),
    "sql": ("tracker/cli/commands/to_inspect/history.py", "import sqlalchemy"),
    "alembic": ("eval_jobs/queue/sql_queue.py", "import alembic"),
    "postgresql": ("eval_jobs/queue/database_sql.py", "import psycopg"),
    "engines": ("eval_jobs/serve/resident/vllm.py", "import vllm"),
    "s3": ("tracker/adapters/curves.py", "import s3fs"),
    "apprise": ("tracker/adapters/alerts/opening.py", "import apprise"),
    "tensorboard": ("tracker/adapters/curves.py", "import tensorboard"),
    "watchdog": ("tracker/cli/commands/to_watch/watch.py", "import watchdog"),
}


def test_every_import_contract_holds() -> None:
    result = _lint(PROJECT)
    assert result.returncode == 0, result.stdout


def test_every_contract_has_a_violation_to_try() -> None:
    assert set(VIOLATIONS) == set(CONTRACTS)


def test_every_contract_notices_its_violation(tmp_path: Path) -> None:
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(PROJECT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, line in VIOLATIONS.values():
        path = tmp_path / file
        path.write_text(f"{path.read_text()}\n{line}\n")
    broken = _lint(tmp_path).stdout
    unnoticed = [
        name for name in VIOLATIONS if not re.search(rf"^{re.escape(CONTRACTS[name])} BROKEN", broken, re.MULTILINE)
    ]
    assert not unnoticed, broken


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    linter = Path(sys.executable).parent / "lint-imports"
    return subprocess.run([str(linter), "--no-cache"], cwd=folder, capture_output=True, text=True, check=False)
