"""Reading loads no more than it needs, and works where only the packages of requirements/reading.txt are installed."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eval_jobs.queue.database_sql import open_database
from tests.records import RUN, forgetting_run
from tests.requires import PROJECT
from tests.stored import store_run
from tracker.adapters.history.store_sql import SqlHistory

RECORDED = forgetting_run(checkpoints=6, samples=20)
OURS = {"tracker", "eval_jobs"}
UNWANTED = {"mlflow", "evalscope", "openai", "vllm", "alembic", "torch", "watchdog", "rich", "click"}

CODE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.argv[2:]):
            raise ModuleNotFoundError(f"no module named {name}", name=name)

sys.meta_path.insert(0, Missing())
import tracker
assert not [m for m in sys.modules if m.startswith(("tracker.", "eval_jobs", "pandas", "numpy", "sqlalchemy"))]
project = tracker.open(sys.argv[1])
own = project[RUN]
for table in (project.runs, project.scores, project.verdicts, project.checkpoints, project.losses, project.forgetting,
              project.latency, project.costs, project.curves, project.sweeps, project.alerts, own.forgetting_matrix):
    assert list(table().columns), table
assert len(project.samples(texts=True).to_pandas()) == len(project.samples())
assert len(own.events("facts")) and len(own.scores(subsets=True)) and len(own.runs(headlines=True))
assert len(own.compare(200, "latest").samples())
assert own.gate("best", baseline="latest").table["word"].notna().all()
assert "<table" in project._repr_html_()
print(*sorted({m.partition(".")[0] for m in sys.modules}))
""".replace("RUN", repr(RUN))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with its settings."""
    folder = tmp_path_factory.mktemp("reading")
    (folder / ".tracker").mkdir()
    engine = open_database(f"sqlite:///{folder}/.tracker/tracker.db")
    history = SqlHistory(engine, folder / ".tracker/samples")
    store_run(history, RECORDED)
    engine.dispose()
    own = f'[run]\nname = "{RUN}"\noutput_dir = "out"\n[[benchmark]]\nbenchmark = "gsm8k"\n'
    (folder / "tracker.toml").write_text(own, encoding="utf-8")
    return folder


def needed() -> set[str]:
    """Return the distributions of requirements/reading.txt, and what they need in turn."""
    text = (PROJECT / "requirements/reading.txt").read_text(encoding="utf-8")
    waiting = [Requirement(line) for line in re.findall(r"^[^#\n].*", text, re.MULTILINE)]
    found: set[str] = set()
    while waiting:
        name = canonicalize_name(waiting.pop().name)
        if name not in found:
            found.add(name)
            inner = [Requirement(line) for line in requires(name) or ()]
            waiting += [one for one in inner if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def test_everything_is_read_with_the_packages_for_reading_alone(folder: Path) -> None:
    known = needed()
    assert len(known) < 25
    others = []
    for module, distributions in packages_distributions().items():
        if module not in OURS and not {canonicalize_name(one) for one in distributions} & known:
            others.append(module)
    assert {"mlflow", "evalscope", "openai", "vllm", "alembic", "click", "rich", "watchdog", "matplotlib"} <= set(
        others
    )
    command = [sys.executable, "-c", CODE, str(folder / "tracker.toml"), *others]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert UNWANTED.isdisjoint(done.stdout.split())
