"""What others write is read and parsed through `eval_jobs.host.bounded`, up to a limit."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.requires import PROJECT

READS = {
    *("open", "read_text", "read_bytes", "readlines", "loads", "load", "safe_load"),
    *("ParquetFile", "read_table", "ZipFile", "getresponse"),
}
"""Names of functions that open, read or parse all that there is."""
HOME = "eval_jobs/host/bounded/"

ALLOWED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "files that this program writes": {
        "eval_jobs/codec.py": ("json.loads",),
        "eval_jobs/evaluate/asking/journal.py": ("path.open", "path.read_bytes", "path.read_text"),
        "eval_jobs/evaluate/common/outputs.py": ("path.open",),
        "eval_jobs/evaluate/data/dataset_cache.py": ("(final / MANIFEST).read_text", "json.loads"),
        "eval_jobs/evaluate/lm_eval/child/answers.py": ("path.read_text",),
        "eval_jobs/evaluate/lm_eval/outcomes.py": ("path.read_text",),
        "eval_jobs/execute/life.py": ("json.loads", "path.read_text"),
        "eval_jobs/host/plan_lock.py": ("path.open",),
        "eval_jobs/serve/process/lifecycle.py": (
            *("(Path(record.tmp_dir) / NOTE).read_text", "json.loads", "pid_file.read_text"),
        ),
        "tracker/adapters/checkpoints/bucket/fetch.py": ("(folder / BEGUN).read_bytes", "json.loads"),
        "tracker/adapters/checkpoints/pins/manifest.py": ("(folder / MANIFEST).open",),
        "tracker/adapters/database/columns.py": ("json.loads",),
        "tracker/adapters/guarded_command.py": ("path.open",),
        "tracker/adapters/samples/packed_parquet.py": ("json.loads", "path.read_bytes", "pq.ParquetFile"),
        "tracker/adapters/samples/questions_parquet.py": ("pq.ParquetFile",),
    },
    "lines of a child process, which bounds what it reads": {
        "eval_jobs/evaluate/asking/pipes.py": ("json.loads",),
        "eval_jobs/evaluate/common/protocol.py": ("json.loads",),
        "eval_jobs/evaluate/lm_eval/child/model.py": ("json.loads",),
        "eval_jobs/serve/preflight.py": ("json.loads",),
        "tracker/adapters/checkpoints/consolidate/consolidator.py": ("json.loads",),
    },
    "files of the user and of installed packages": {
        "dashboards/page/html.py": ("(files('dashboards') / 'templates' / 'samples.js').read_text",),
        "eval_jobs/evaluate/data/known_benchmarks.py": ("json.loads", "path.read_text", "source.read_text"),
        "eval_jobs/evaluate/lm_eval/child/main.py": ("command.read_bytes",),
        "eval_jobs/evaluate/lm_eval/place.py": ("command.open",),
        "eval_jobs/serve/preflight.py": ("path.read_text",),
        "eval_jobs/serve/resident/certificate.py": ("path.read_bytes", "path.read_text"),
        "tracker/adapters/secrets.py": ("file.read_text",),
        "tracker/api/settings_file.py": ("path.read_bytes",),
        "tracker/config/__init__.py": ("read_text",),
        "tracker/config/gating.py": ("read_text",),
        "tracker/config/health.py": ("read_text", "shipped.read_text"),
        "tracker/config/reading.py": ("path.read_text", "read_text", "tomllib.loads"),
    },
    "files of the kernel": {
        "eval_jobs/execute/worker_name.py": ("_VMSTAT.read_text",),
        "eval_jobs/host/cpu_placement.py": ("Path('/proc/thread-self/schedstat').read_text",),
        "eval_jobs/host/machine.py": ("path.open",),
        "eval_jobs/host/paths.py": ("MOUNTS.read_text",),
        "eval_jobs/host/proc.py": ("(_PROC / 'sys/kernel/random/boot_id').read_text", "open"),
    },
    "read in parts, or limited by the lines around it": {
        "eval_jobs/host/local_http.py": ("connection.getresponse",),
        "eval_jobs/serve/weights/digest_check.py": ("path.open",),
        "tracker/adapters/checkpoints/files/dcp_index.py": (
            *(
                "_Blind(io.BytesIO(content)).load",
                "_Reader(io.BytesIO(content)).load",
                "archive.open",
                "zipfile.ZipFile",
            ),
        ),
        "tracker/adapters/checkpoints/files/safetensors_file.py": ("path.open",),
        "tracker/adapters/gate_bundle.py": ("json.loads", "path.open", "zipfile.ZipFile"),
        "tracker/adapters/mlflow/view.py": ("json.loads",),
        "tracker/adapters/processes/kernel_log.py": ("os.open",),
        "tracker/adapters/processes/stacks.py": ("json.loads",),
        "tracker/adapters/result_files.py": ("json.loads", "yaml.load"),
        "tracker/adapters/trainer_files/documents.py": ("archive.open", "yaml.load", "zipfile.ZipFile"),
        "tracker/domain/tracking/verdict_note.py": ("json.loads",),
    },
    "checked before a pin is made, and read by a process of its own, which cannot import this": {
        "eval_jobs/serve/worker_extension/tracker_worker/extension.py": ("(folder / name).open",),
        "eval_jobs/serve/worker_extension/tracker_worker/weight_files.py": ("json.loads", "path.read_bytes"),
        "tracker/adapters/checkpoints/consolidate/child/main.py": (
            *("Index(file).load", "Path(request['state'], '.metadata').open", "dcp.load", "head.load", "json.loads"),
            *("other.load", "(out / file).open", "torch.load", "weights[name].load"),
        ),
    },
    "no file": {
        "dashboards/page/command.py": ("webbrowser.open",),
        "eval_jobs/evaluate/asking/pipes.py": ("Path(os.devnull).open",),
        "eval_jobs/evaluate/plugin_evaluator.py": ("self._found.open",),
        "eval_jobs/execute/nudge.py": ("Path(os.devnull).open",),
        "eval_jobs/host/plugins.py": ("self.load", "self.point.load"),
        "eval_jobs/host/storage.py": ("os.open",),
        "eval_jobs/serve/plugin_engine.py": ("self._found.open",),
        "tracker/adapters/alerts/channels/plugin_channel.py": ("self._found.open",),
        "tracker/adapters/checkpoints/pins/store.py": ("os.open",),
        "tracker/adapters/checkpoints/plugin_source.py": ("self._found.open",),
        "tracker/adapters/health/rule_plugins.py": ("found.load",),
        "tracker/adapters/mlflow/client.py": ("os.open",),
        "tracker/adapters/samples/files_parquet.py": ("os.open",),
        "tracker/cli/main.py": ("found.load", "point.load"),
    },
}
"""Why a call reads nothing foreign, or reads it bounded without `eval_jobs.host.bounded` -> files -> calls."""


def test_what_others_write_is_read_up_to_a_limit() -> None:
    found = {call for path in _modules() for call in _reads(path)}
    files = [(file, calls) for reason in ALLOWED.values() for file, calls in reason.items()]
    assert found == {f"{file} {call}" for file, calls in files for call in calls}


def test_a_new_way_to_read_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import json\nvalue = json.loads(path.read_text())\npath.open('wb')\n")
    assert sorted(call.rpartition(" ")[2] for call in _reads(module, tmp_path)) == ["json.loads", "path.read_text"]


def _modules() -> Iterator[Path]:
    for package in ("eval_jobs", "tracker", "dashboards"):
        for path in sorted((PROJECT / package).rglob("*.py")):
            if not str(path.relative_to(PROJECT)).startswith(HOME):
                yield path


def _reads(path: Path, root: Path = PROJECT) -> Iterator[str]:
    bounded = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("eval_jobs.host.bounded"):
            bounded |= {name.name for name in node.names}
        if isinstance(node, ast.Call) and _name_of(node.func) in READS and not _only_writes(node):
            called = ast.unparse(node.func)
            if called not in bounded:
                yield f"{path.relative_to(root)} {called}"


def _name_of(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return getattr(called, "id", "")


def _only_writes(call: ast.Call) -> bool:
    """Return whether a file is opened with a mode such as "wb" or "a"."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    modes = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return any(mode[0] in "wax" and set(mode) <= set("waxbt") for mode in modes if mode)
