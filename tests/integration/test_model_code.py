"""No code that a model wrote is run: through the real EvalScope, whatever way a code benchmark is reached by."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from eval_jobs.errors import EvaluateError
from eval_jobs.evaluate.common.child_process import ChildProcess
from eval_jobs.evaluate.common.protocol import Message, error_of
from eval_jobs.evaluate.common.task_config import benchmark_task, evaluate_request
from eval_jobs.evaluate.data.dataset_cache import open_cached_dataset
from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
from eval_jobs.types import Benchmark, Endpoint
from tests.evaluating import AT_ONCE, ask, endpoint_of, suite_of
from tests.fakes.openai_server import OpenAIServer, Reply

TASK = {
    "task_id": "HumanEval/0",
    "prompt": "def add(a, b):\n",
    "canonical_solution": "    return a + b\n",
    "entry_point": "add",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
}


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvalScopeEvaluator]:
    evaluator = EvalScopeEvaluator(tmp_path_factory.mktemp("code"))
    yield evaluator
    evaluator.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "openai_humaneval.jsonl").write_text(json.dumps(TASK) + "\n")
    (folder / "test.jsonl").write_text(json.dumps(TASK) + "\n")
    return folder


@pytest.mark.parametrize("adapter", ["humaneval", "HumanEval", "mbpp", "gaia", "data_collection", "live_code_bench"])
def test_a_plan_for_a_code_benchmark_is_refused_before_anything_is_asked(
    adapter: str, evaluator: EvalScopeEvaluator, data: Path
) -> None:
    """However the plan came into the queue: by an older version, or by hand."""
    with (
        OpenAIServer(lambda _: Reply(text="x")) as server,
        pytest.raises(EvaluateError, match="executes model-generated code"),
    ):
        ask(evaluator, server, Benchmark(name="code", adapter=adapter, data=str(data)), plan_id="code")
    assert server.requests == []


def test_the_evaluator_itself_runs_no_code_when_it_is_asked_to(data: Path, tmp_path: Path) -> None:
    """The second lock: without the first one, a model's program is neither asked for nor run."""
    ran = tmp_path / "ran"
    program = f"```python\nimport pathlib\npathlib.Path({str(ran)!r}).touch()\ndef add(a, b):\n    return a + b\n```"
    benchmark = Benchmark(name="code", adapter="humaneval", data=str(data))
    child = ChildProcess(sys.executable, tmp_path, tmp_path / "child.log", offline=True)
    try:
        child.wait_ready()
        with OpenAIServer(lambda _: Reply(text=program)) as server:
            (said,) = child.ask(request_for(benchmark, endpoint_of(server), tmp_path), silence_s=300)
            assert server.requests == []
    finally:
        child.stop()
    error = error_of(said, logs="")
    assert "executes model-generated code" in error.message
    assert "sandbox" in error.hint
    assert not ran.exists()


def request_for(benchmark: Benchmark, endpoint: Endpoint, folder: Path) -> Message:
    """Return what the evaluator's child would be asked for a benchmark that nobody has looked at."""
    suite, data = suite_of(benchmark), open_cached_dataset(benchmark, folder / "cached")
    task = benchmark_task(benchmark, suite, endpoint, folder=str(folder / "run"), data=data)
    return evaluate_request(suite, endpoint, [task]) | {"retry_policy": asdict(AT_ONCE)}


CHILD = "from eval_jobs.evaluate.evalscope.child import main\n"
TRUSTED = (
    "import modelscope\n"
    "class Asked:\n"
    "    @staticmethod\n"
    "    def load(**options): raise SystemExit(options['trust_remote_code'])\n"
    "modelscope.MsDataset = Asked\n"
    "def ask():\n"
    "    try: main.DatasetHub('x/y', trust_remote=True, force_redownload=True).load('train')\n"
    "    except SystemExit as trusted: return trusted.code\n"
    "before = ask()\n"
    "main.trust_no_data_set()\n"
    "print(before, ask())"
)
"""What ModelScope is asked for; it would be the one to run the code."""
RENAMED = (
    "class Hub: trusted = True\n"
    "main.DatasetHub = Hub\n"
    "main.carry_out_request({'tasks': [{'benchmark': 'b'}]}, lambda said: print(said['message']))"
)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (TRUSTED, "True False"),
        (RENAMED, "cannot disable code that comes with data sets: EvalScope's DatasetHub has no `trust_remote`"),
    ],
    ids=["disabled", "elsewhere"],
)
def test_code_that_comes_with_a_data_set_is_not_trusted(program: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD + program], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == said
