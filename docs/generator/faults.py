"""The table of faults, from the names of the tests that cause them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """# Faults and their tests

Each row is a fault that a test causes on purpose, in the words of the test's name, with the file that contains it. The
tests run in CI. What the program promises: [Reliability](reliability.md).
"""

SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "Killed processes": (
        "tests/integration/test_every_line.py",
        "tests/integration/test_pins_killed_at_every_line.py",
        "tests/integration/test_orphans.py",
        "tests/e2e/test_chaos.py",
        "tests/e2e/test_worker_process.py",
        "tests/unit/eval_jobs/execute/worker/test_left_claims.py",
        "tests/contract/test_queue_losses.py",
        "tests/integration/test_evaluator_faults.py",
        "tests/integration/test_evaluator_at_once.py",
        "tests/contract/test_probe_client.py",
    ),
    "Databases and MLflow": (
        "tests/contract/test_database_faults.py",
        "tests/contract/test_queue_outage.py",
        "tests/contract/test_locks.py",
        "tests/contract/test_table_versions.py",
        "tests/integration/test_mlflow_faults.py",
    ),
    "Checkpoints and folders": (
        "tests/unit/tracker/adapters/checkpoints/pins/test_soundness.py",
        "tests/unit/tracker/adapters/checkpoints/folder/test_source_network.py",
        "tests/unit/tracker/adapters/checkpoints/folder/test_source_paths.py",
        "tests/unit/tracker/adapters/checkpoints/folder/test_source_disks.py",
        "tests/unit/tracker/adapters/checkpoints/folder/test_source_clocks.py",
        "tests/unit/tracker/adapters/checkpoints/folder/test_source_gaps.py",
        "tests/integration/test_consolidation.py",
        "tests/integration/test_bucket_faults.py",
    ),
    "Logs of a training": (
        "tests/contract/test_training_health.py",
        "tests/contract/test_training_log.py",
        "tests/unit/tracker/adapters/trainer_files/test_followed_file.py",
        "tests/unit/tracker/adapters/trainer_files/test_log_folder.py",
    ),
    "Processes of a training": (
        "tests/integration/test_training_hangs.py",
        "tests/unit/tracker/app/health/test_job_watch.py",
        "tests/unit/tracker/app/health/test_job_ends.py",
        "tests/contract/test_processes.py",
        "tests/contract/test_machine.py",
        "tests/unit/tracker/adapters/trainer_files/test_read_ahead.py",
        "tests/integration/test_guard_command.py",
    ),
    "Engines and endpoints": (
        "tests/integration/test_endpoint_faults.py",
        "tests/integration/test_engine_process.py",
        "tests/integration/test_engine_death.py",
        "tests/integration/test_warm_engine.py",
        "tests/integration/test_warm_adapters.py",
        "tests/integration/test_warm_proofs.py",
        "tests/integration/swap/test_swap_exact.py",
        "tests/integration/swap/test_swap_tied.py",
        "tests/integration/swap/test_swap_unfit.py",
        "tests/integration/test_model_code.py",
    ),
    "Disk space and memory": (
        "tests/integration/test_evaluator_disk.py",
        "tests/integration/test_watcher_memory.py",
    ),
    "Alerts": (
        "tests/contract/test_notifier.py",
        "tests/contract/test_alerting.py",
        "tests/unit/tracker/app/test_stall_monitor.py",
        "tests/unit/tracker/adapters/alerts/test_outbox_sql.py",
    ),
    "Hostile input": (
        "tests/e2e/test_bad_input.py",
        "tests/e2e/test_secrets.py",
        "tests/unit/tracker/cli/test_hostile_text.py",
        "tests/unit/tracker/cli/test_log_text.py",
    ),
    "Plugins": ("tests/unit/tracker/test_plugins.py", "tests/e2e/test_plugins.py"),
}


def faults_page() -> str:
    """Return docs/explanation/faults.md."""
    lines = [HEAD]
    for subject, files in SUBJECTS.items():
        lines += [f"## {subject}\n", "| fault and outcome | test file |", "|---|---|"]
        lines += [f"| {name} | `{file.removeprefix('tests/')}` |" for file in files for name in _names(ROOT / file)]
        lines.append("")
    return "\n".join(lines)


# --- private


def _names(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            text = node.name.removeprefix("test_").replace("_", " ")
            yield text[0].upper() + text[1:]
