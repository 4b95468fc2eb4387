"""What a watcher does without, to stay small: each in a process of its own."""

import subprocess
import sys
from pathlib import Path

from tests.mlflow_stores import MlflowFiles

SEND_WITHOUT = """
import sys
from pathlib import Path
from tracker.adapters.free_memory import without
with without(*sys.argv[2:]):
    if len(sys.argv) > 2:
        from tracker.adapters.mlflow.lean import load
        load("sqlite:///")
from tests.mlflow_stores import MlflowFiles
from tests.records import forgetting_run
from tracker.adapters.mlflow.store import MlflowStore
from tracker.domain.tracking.batch import tracking_batch
run, store = forgetting_run(samples=8), MlflowStore(MlflowFiles(Path(sys.argv[1])).settings())
for record, report in list(zip(run.records, run.reports, strict=True))[:2]:
    store.send(tracking_batch(record, report))
print(*sorted({"pandas", "pygments"} & set(sys.modules)))
"""

WATCH = """
import sys
from tracker.cli.commands.watch import command
command.main(["--config", sys.argv[1], "--until-idle", "--workers", "0"], standalone_mode=False)
import pyarrow
print("mlflow" in sys.modules, "pandas" in sys.modules, pyarrow.default_memory_pool().backend_name)
import pandas
print(len(pyarrow.table({"a": [1]}).to_pandas()), pyarrow.Table.from_pandas(pandas.DataFrame({"a": [1]})).num_rows)
"""


def test_mlflow_is_sent_the_same_without_what_it_need_not_load(tmp_path: Path) -> None:
    for name in ("whole", "lean"):
        (tmp_path / name).mkdir()
    whole, lean = MlflowFiles(tmp_path / "whole"), MlflowFiles(tmp_path / "lean")
    assert send_without(whole) == ["pandas", "pygments"]
    assert send_without(lean, "pandas", "pygments") == []
    assert lean.dump() == whole.dump()


def test_a_watcher_does_without_pandas_and_a_pool_and_whoever_wants_pandas_in_it_has_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "sums.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n')
    config = tmp_path / "tracker.toml"
    config.write_text(
        '[run]\nname = "run"\noutput_dir = "out"\n[watch]\nsettle_s = 0.1\n'
        '[[benchmark]]\nbenchmark = "exact"\ndata = "sums.jsonl"\n'
    )
    command = [sys.executable, "-c", WATCH, str(config)]
    watched = subprocess.run(command, capture_output=True, text=True, check=False)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.splitlines()[-2:] == ["True False system", "1 1"]


def send_without(files: MlflowFiles, *packages: str) -> list[str]:
    """Send two checkpoints from a process of its own; return which of the packages it has loaded."""
    command = [sys.executable, "-c", SEND_WITHOUT, str(files.folder), *packages]
    sent = subprocess.run(command, capture_output=True, text=True, check=False)
    assert sent.returncode == 0, sent.stderr
    return sent.stdout.split()
