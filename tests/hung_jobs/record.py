"""Writes tests/golden/hung_jobs: `python -m tests.hung_jobs.record PY_SPY` (the path of py-spy 0.4.3)."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.hung_jobs.starter import CASES, Job, jobs
from tests.requires import PROJECT

GOLDEN = PROJECT / "tests" / "golden" / "hung_jobs"
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
TIMES_S = (0, 3, 6)


def stacks(py_spy: str, pid: int) -> dict[str, Any]:
    command = [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"exit_code": done.returncode, "error": done.stderr.strip()}
    return {"exit_code": 0, "threads": json.loads(done.stdout)}


def facts(process: psutil.Process) -> dict[str, Any]:
    stat = Path(f"/proc/{process.pid}/stat").read_text("utf-8")
    found: dict[str, Any] = {
        "pid": process.pid,
        "ppid": process.ppid(),
        "status": process.status(),
        "state": stat.rpartition(")")[2].split()[0],
        "cpu_user_s": process.cpu_times().user,
        "cpu_system_s": process.cpu_times().system,
        "num_threads": process.num_threads(),
        "wchan": Path(f"/proc/{process.pid}/wchan").read_text("utf-8"),
        "create_time": process.create_time(),
    }
    for name in ("cmdline", "environ", "io_counters"):
        try:
            found[name] = getattr(process, name)()
        except psutil.Error as error:
            found[name] = type(error).__name__
    if isinstance(found["environ"], dict):
        found["environ"] = {name: found["environ"][name] for name in NAMES if name in found["environ"]}
    if not isinstance(found["io_counters"], str):
        found["io_counters"] = found["io_counters"]._asdict()
    return found


def sample(py_spy: str, job: Job) -> dict[str, Any]:
    return {
        "steps": job.steps(),
        "processes": {
            name: {"facts": facts(process), "py_spy": stacks(py_spy, process.pid)}
            for name, process in job.processes().items()
        },
    }


def record(py_spy: str, root: Path, cases: tuple[str, ...], *, torchrun: bool) -> None:
    with jobs(root, cases, torchrun=torchrun) as started:
        for job in started.values():
            job.wait_for_steps(10)
        time.sleep(3)  # a rank that ends has ended
        begun = time.monotonic()
        samples: dict[str, list[Any]] = {case: [] for case in cases}
        for due in TIMES_S:
            time.sleep(max(0.0, begun + due - time.monotonic()))
            for case, job in started.items():
                at = {"at_s": round(time.monotonic() - begun, 3)}
                samples[case].append(at | sample(py_spy, job))
        for case, job in started.items():
            about = {"case": case, "torchrun": torchrun, "samples": samples[case], "log": job.log.read_text("utf-8")}
            write(f"torchrun_{case}" if torchrun else case, about, root)


def write(name: str, about: dict[str, Any], root: Path) -> None:
    text = json.dumps(about, indent=None, separators=(",", ":"), ensure_ascii=False)
    environment = str(Path(sys.prefix))
    for folder, stands_for in ((str(root), "/app/out"), (environment, "/app/.venv"), (str(PROJECT), "/app")):
        text = text.replace(folder, stands_for)
    text = text.replace(sys.base_prefix, "/usr")
    text = text.replace('{"at_s"', '\n{"at_s"').replace('"py_spy"', '\n "py_spy"').replace('"log"', '\n"log"')
    (GOLDEN / f"{name}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record(sys.argv[1], Path(folder) / "env", CASES, torchrun=False)
        record(sys.argv[1], Path(folder) / "torchrun", ("healthy", "sleep", "loader"), torchrun=True)
