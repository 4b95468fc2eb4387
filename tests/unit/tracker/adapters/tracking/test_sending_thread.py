"""The thread that sends to MLflow, beside threads that use the database."""

import subprocess
import sys
from pathlib import Path


def test_what_mlflow_imports_of_sqlalchemy_is_imported_before_the_thread_that_sends(tmp_path: Path) -> None:
    """While it is half imported in one thread, statements that another one makes fail with an AttributeError."""
    code = (
        "import sys\n"
        "from eval_jobs.queue.database_sql import open_database\n"
        "from tracker.adapters.tracking.outbox_sql import OutboxTracking\n"
        "tracking = OutboxTracking(open_database(f'sqlite:///{sys.argv[1]}/t.db'), None)\n"
        "before = 'sqlalchemy.orm' in sys.modules\n"
        "tracking._send_due = lambda: print(before, 'sqlalchemy.orm' in sys.modules)\n"
        "tracking.flush()\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False True\n"
