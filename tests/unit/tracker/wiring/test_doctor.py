"""`tracker doctor` over real files: a checkpoint, data and settings that are broken one at a time."""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from eval_jobs.serve.preflight import read_environment, read_model
from eval_jobs.serve.resident.order import runs_on_cpu
from eval_jobs.types import ServeSpec
from tests.commands import run_tracker
from tests.fakes.openai_server import OpenAIServer
from tests.json_output import result_of
from tests.requires import requires_vllm
from tests.tiny_model import write_checkpoint, write_lora
from tests.unit.tracker.adapters.checkpoints.folder.test_source_convert import save_lightning
from tracker.config import parse_config
from tracker.domain.readiness.finding import Finding, Level
from tracker.wiring.doctor import examine
from tracker.wiring.project import Project

SETTINGS = """
[run]
name = "r"
output_dir = "out"
[serve]
gpu_memory_utilization = 0.01
{serve}
[suite]
max_tokens = 64
{suite}
[[benchmark]]
benchmark = "exact"
data = "sums.jsonl"
{more}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with one good checkpoint and three questions of 8, 300 and 400 characters, one token each."""
    write_checkpoint(tmp_path / "out" / "checkpoint-100")
    rows = ({"question": "x" * size, "answer": "1"} for size in (8, 300, 400))
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def found(folder: Path, *, serve: str = "", suite: str = "", more: str = "") -> dict[str, list[Finding]]:
    config = parse_config(SETTINGS.format(serve=serve, suite=suite, more=more), folder / "tracker.toml")
    by_subject: dict[str, list[Finding]] = {}
    for finding in examine(Project(config)):
        by_subject.setdefault(finding.subject, []).append(finding)
    return by_subject


def troubles(folder: Path, **settings: str) -> list[tuple[str, str, str]]:
    return [
        (one.subject, str(one.level), one.message)
        for findings in found(folder, **settings).values()
        for one in findings
        if one.level is not Level.OK
    ]


def test_a_good_project_has_no_findings_and_nothing_is_written(folder: Path) -> None:
    requires_vllm()
    assert troubles(folder) == []
    assert sorted(path.name for path in folder.iterdir()) == ["out", "sums.jsonl"]


def without_template(folder: Path) -> None:
    path = folder / "out" / "checkpoint-100" / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": None}))


def without_tokenizer(folder: Path) -> None:
    for path in (folder / "out" / "checkpoint-100").glob("tokenizer*"):
        path.unlink()


def torn(folder: Path) -> None:
    (folder / "out" / "checkpoint-100" / "model.safetensors").write_bytes(b"\x10")


def renamed(folder: Path) -> None:
    (folder / "out" / "checkpoint-100").rename(folder / "out" / "save_100")


def without_base(folder: Path) -> None:
    base = write_checkpoint(folder / "base")
    write_lora(base, folder / "out" / "checkpoint-200")
    (base / "config.json").unlink()
    base.rename(folder / "gone")


def untouched(folder: Path) -> None:
    del folder


@pytest.mark.parametrize(
    ("damage", "settings", "subject", "level", "message"),
    [
        (without_template, {}, "model", "error", "no chat template in .*, and sums sends chat messages"),
        (without_tokenizer, {}, "model", "error", "no tokenizer in "),
        (without_base, {}, "model", "error", "no base model at "),
        (torn, {}, "checkpoints", "warning", "checkpoint-100 is not complete: "),
        (renamed, {}, "checkpoints", "warning", "no folder in .* has the name of a checkpoint; it contains save_100"),
        (untouched, {"serve": "max_model_len = 1024"}, "model", "error", "the model's maximum is 512 tokens"),
        (
            untouched,
            {"serve": "max_model_len = 64"},
            "benchmark sums",
            "error",
            "3 of 3 questions too long: the longest has 400",
        ),
        (untouched, {"serve": "max_model_len = 400"}, "benchmark sums", "warning", "1 of 3 questions too long: the lo"),
        (untouched, {"serve": "max_model_len = 71"}, "benchmark sums", "error", "3 of 3 questions too long"),
        (
            untouched,
            {"serve": "max_model_len = 500", "more": f'prompt_template = "{"y" * 440} {{question}}"'},
            "benchmark sums",
            "error",
            "3 of 3 questions too long: the longest has 8[0-9][0-9] tokens",
        ),
        (
            untouched,
            {"serve": 'engine = "remote"\nbase_url = "http://127.0.0.1:9/v1"'},
            "engine",
            "warning",
            "no response",
        ),
        (untouched, {"serve": 'python = "/bin/false"'}, "engine", "error", "serve.python does not run as a Python in"),
        (untouched, {"serve": 'python = "nowhere"'}, "engine", "error", "serve.python is not an executable file"),
        (untouched, {"more": '[[benchmark]]\nbenchmark = "gsm8kk"'}, "benchmark gsm8kk", "error", "unknown benchmark"),
        (
            untouched,
            {"more": '[tracking]\nuri = "http://127.0.0.1:9"'},
            "MLflow",
            "warning",
            "cannot use the MLflow store",
        ),
        (
            untouched,
            {"more": '[[alerts.channel]]\nname = "team"\nkind = "slack"\nurl_env = "NO_SUCH_VARIABLE"'},
            "notifications",
            "error",
            "environment variable NO_SUCH_VARIABLE is not set",
        ),
    ],
)
def test_each_fault_is_one_finding_with_a_hint(
    folder: Path, damage: Callable[[Path], None], settings: dict[str, str], subject: str, level: str, message: str
) -> None:
    damage(folder)
    findings = [one for one in found(folder, **settings).get(subject, ()) if one.level == level]
    assert len(findings) == 1
    assert re.search(message, findings[0].message)
    assert findings[0].hint


@pytest.mark.parametrize(
    ("config", "head_size"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4}, 16),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": None}, 16),
        ({"hidden_size": 64, "num_attention_heads": 2, "head_dim": 16}, 16),
        ({"n_embd": 32, "n_head": 4}, 8),
        ({"text_config": {"hidden_size": 128, "num_attention_heads": 1}}, 128),
        ({"hidden_size": 64, "num_attention_heads": 2, "kv_lora_rank": 8}, None),
        ({"hidden_size": 64}, None),
    ],
)
def test_the_size_of_an_attention_head_is_derived_as_vllm_does(
    tmp_path: Path, config: dict[str, object], head_size: int | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_model(tmp_path, weights_bytes=1).head_size == head_size


def test_the_head_sizes_of_a_cpu_come_from_the_installed_vllm(folder: Path) -> None:
    requires_vllm()
    sizes = read_environment(ServeSpec()).head_sizes
    if not runs_on_cpu():
        assert sizes == ()
        return
    assert {32, 48, 64, 128} <= set(sizes)
    assert 16 not in sizes
    path = folder / "out" / "checkpoint-100" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"head_dim": 16}))
    (message,) = [words for subject, level, words in troubles(folder) if (subject, level) == ("model", "error")]
    assert re.fullmatch(
        rf"its attention heads have size 16; vLLM \S+ on a CPU supports {', '.join(map(str, sizes))}", message
    )


def test_data_of_a_hub_is_in_the_cache_or_needs_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    more, suite = '[[benchmark]]\nbenchmark = "gsm8k"', 'dataset_hub = "huggingface"'
    (finding,) = found(folder, suite=suite, more=more)["benchmark gsm8k"]
    assert (finding.level, "127.0.0.1:9 does not respond" in finding.message) == (Level.ERROR, True)
    assert "suite.dataset_hub" in finding.hint
    (folder / ".tracker/work/cache/huggingface/hub/datasets--openai--gsm8k").mkdir(parents=True)
    assert [one.level for one in found(folder, suite=suite, more=more)["benchmark gsm8k"]] == [Level.OK, Level.OK]


def test_a_hub_that_does_not_answer_is_asked_once_and_a_model_is_no_data_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "hf" / "hub" / "models--me--gsm8k-sft").mkdir(parents=True)
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    accepted: list[socket.socket] = []

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                accepted.append(listening.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        thread = threading.Thread(target=accept, args=(listening,))
        thread.start()
        hub = ("gsm8k", "arc", "mmlu", "truthful_qa")
        more = "".join(f'[[benchmark]]\nbenchmark = "{name}"\n' for name in hub)
        known = found(folder, suite='dataset_hub = "huggingface"', more=more)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in accepted:
        connection.close()
    assert len(accepted) == 1
    assert [known[f"benchmark {name}"][0].level for name in hub] == [Level.ERROR] * len(hub)


def test_a_remote_engine_that_rejects_the_key_is_an_error_and_one_that_answers_is_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OpenAIServer(api_key="right") as server:
        serve = f'engine = "remote"\nbase_url = "{server.base_url}"\napi_key_env = "GATEWAY"'
        for key, level in (("wrong", Level.ERROR), ("right", Level.OK)):
            monkeypatch.setenv("GATEWAY", key)
            (finding,) = found(folder, serve=serve)["engine"]
            assert finding.level is level
            assert key not in finding.message + finding.hint


def test_a_database_that_is_away_is_an_error(folder: Path) -> None:
    away = '[store]\ndatabase = "postgresql://127.0.0.1:9/tracker"'
    assert ("database", "error") in [(subject, level) for subject, level, _ in troubles(folder, more=away)]


def test_a_checkpoint_that_a_command_converts_has_no_tokenizer_yet(folder: Path) -> None:
    shutil.rmtree(folder / "out")
    save_lightning(folder / "out", 100)
    convert = '[watch]\nconvert = ["python", "x.py", "{source}", "{target}"]'
    (finding,) = found(folder, more=convert)["model"]
    assert (finding.level, "converted by watch.convert" in finding.message) == (Level.OK, True)
    (before,) = found(folder)["checkpoints"]
    assert (before.level, "PyTorch Lightning checkpoint" in before.message) == (Level.WARNING, True)


def test_an_environment_without_the_engine_says_what_to_install(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (finding,) = found(folder, serve=f'python = "{folder}/env/bin/python"')["engine"]
    assert finding.message == f"vLLM is not installed in the environment of {folder}/env/bin/python"
    assert "checkpoint-tracker[vllm]" in finding.hint


def test_repeated_rows_are_a_warning(folder: Path) -> None:
    (folder / "sums.jsonl").write_text('{"question": "1+1=", "answer": 2}\n' * 3)
    said = f"{folder}/sums.jsonl: 2 rows repeat an earlier one, first in line 2, 3"
    assert ("benchmark sums", "warning", said) in troubles(folder)


def test_the_command_ends_with_2_if_evaluations_would_fail(folder: Path) -> None:
    requires_vllm()
    (folder / "tracker.toml").write_text(SETTINGS.format(serve="", suite="", more=""))
    done = run_tracker(folder, "doctor", "--for", "evaluation")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 errors, 0 warnings: evaluations can begin")
    without_template(folder)
    done = run_tracker(folder, "doctor", "--for", "evaluation", "--json")
    assert done.returncode == 2
    errors = [one for one in result_of(done.stdout) if one["level"] == "error"]
    assert [one["subject"] for one in errors] == ["model"]
