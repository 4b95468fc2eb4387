"""The script that people write: start vLLM on a checkpoint, `evalscope eval`, `vllm bench serve`, log, stop.

Each stage is what a shell script would call, with the settings that the tracker uses. MLflow is imported once, as in a
script in Python that loops over checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx
import mlflow

from benchmarks.looping.material import BENCHMARKS, MAX_MODEL_LEN, SAMPLES, SAVE_STEPS, Workload, write_questions
from benchmarks.probe_agreement import write_shim

HEALTH_POLL_S = 0.5
START_TIMEOUT_S = 300.0
MODEL = "checkpoint"


@dataclass(kw_only=True)
class Stages:
    """Seconds of each stage of one checkpoint, in their order."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of the block to a stage."""
        begun_s = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun_s


def measure(checkpoint: Path, workload: Workload, work_dir: Path) -> Mapping[str, float]:
    """Evaluate one checkpoint as the script does; return the seconds of each stage."""
    work_dir.mkdir(parents=True)
    write_questions(work_dir / "data")
    mlflow.set_tracking_uri(f"sqlite:///{work_dir.parent / 'mlflow.db'}")
    mlflow.search_experiments()  # its tables are made once, not for every checkpoint
    shim = write_shim(work_dir, _version_on_cpu().partition("+")[0])
    port, stages = _free_port(), Stages()
    with stages.timed("start vLLM"):
        server = _start(checkpoint, port, shim, work_dir)
        _wait_until_healthy(server, port, work_dir)
    with stages.timed("evalscope eval"):
        scores = _evaluate(port, workload, work_dir)
    with stages.timed("vllm bench serve"):
        latency = _bench(checkpoint, port, workload, shim)
    with stages.timed("MLflow"):
        step = int(checkpoint.name.rpartition("-")[2])
        with mlflow.start_run(run_name=f"step {step // SAVE_STEPS}"):
            mlflow.log_metrics({**scores, **latency}, step=step)
    with stages.timed("stop vLLM"):
        server.send_signal(signal.SIGTERM)
        server.wait()
    return stages.seconds


# --- private


def _start(checkpoint: Path, port: int, shim: Path, work_dir: Path) -> subprocess.Popen[bytes]:
    command = ["serve", str(checkpoint), "--served-model-name", MODEL, "--port", str(port), "--host", "127.0.0.1"]
    command += ["--max-model-len", str(MAX_MODEL_LEN), "--disable-uvicorn-access-log"]
    command += ["--enforce-eager"] if _version_on_cpu() else []  # compiling takes longer than it saves there
    with (work_dir / "vllm.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.cli.main", *command],
            env=_environment(shim) | {"VLLM_CPU_KVCACHE_SPACE": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _version_on_cpu() -> str:
    try:
        return version("vllm-cpu")
    except PackageNotFoundError:
        return ""


def _environment(shim: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(shim), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def _wait_until_healthy(server: subprocess.Popen[bytes], port: int, work_dir: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and server.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(HEALTH_POLL_S)
    sys.exit(f"vLLM did not start: {work_dir / 'vllm.log'}")


def _evaluate(port: int, workload: Workload, work_dir: Path) -> dict[str, float]:
    """Run EvalScope's command on the three benchmarks as subsets of one data set, and read its report."""
    data = {
        "local_path": str(work_dir / "data"),
        "subset_list": list(BENCHMARKS),
        "metric_list": ["Rouge"],
        "prompt_template": "{question}",
    }
    options = {
        "--model": MODEL,
        "--api-url": f"http://127.0.0.1:{port}/v1",
        "--api-key": "EMPTY",
        "--eval-type": "openai_api",
        "--datasets": "general_qa",
        "--dataset-args": json.dumps({"general_qa": data}),
        "--eval-batch-size": workload.concurrency,
        "--generation-config": json.dumps({"max_tokens": workload.max_tokens, "temperature": 0.0}),
        "--work-dir": work_dir / "evalscope",
    }
    command = [str(Path(sys.executable).with_name("evalscope")), "eval", "--no-timestamp"]
    _run([*command, *(str(word) for pair in options.items() for word in pair)], os.environ)
    (report,) = (work_dir / "evalscope" / "reports").glob("*/general_qa.json")
    categories = json.loads(report.read_text())["metrics"][0]["categories"]
    subsets = [s for category in categories for s in category["subsets"] if s["name"] in BENCHMARKS]
    found = {f"bench/{subset['name']}": float(subset["score"]) for subset in subsets}
    if len(found) != len(BENCHMARKS) or any(subset["num"] != SAMPLES for subset in subsets):
        sys.exit(f"evalscope eval did not score all questions: {report}")
    return found


def _bench(checkpoint: Path, port: int, workload: Workload, shim: Path) -> dict[str, float]:
    load, result = workload.load, shim / "bench.json"
    options = {
        "--backend": "openai",
        "--endpoint": "/v1/completions",
        "--base-url": f"http://127.0.0.1:{port}",
        "--model": MODEL,
        "--tokenizer": checkpoint,
        "--dataset-name": "random",
        "--random-input-len": load.input_tokens,
        "--random-output-len": load.output_tokens,
        "--num-prompts": load.requests,
        "--max-concurrency": load.concurrency,
        "--num-warmups": load.warmup_requests,
        "--temperature": 0,
        "--result-dir": shim,
        "--result-filename": result.name,
    }
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
    command += ["--ignore-eos", "--save-result", "--disable-tqdm"]
    _run([*command, *(str(word) for pair in options.items() for word in pair)], _environment(shim))
    content = json.loads(result.read_text())
    return {f"perf/{name}": float(content[f"median_{name}"]) for name in ("ttft_ms", "tpot_ms")}


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:4])} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
