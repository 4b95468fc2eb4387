"""`tracker init` over real folders: what it sees, what it offers, and that the result passes `tracker doctor`."""

import json
import tomllib
from pathlib import Path, PurePath
from typing import Any

import pytest

from eval_jobs.evaluate.data.held_out import question_of
from eval_jobs.records.preflight import EngineEnvironment, ModelFacts
from tests.commands import run_tracker, tracker
from tests.requires import requires_vllm
from tests.tiny_model import write_checkpoint
from tracker.domain.readiness.proposal import run_name, serve_values, suite_values

CHAT = {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2="}]}
ANSWERED = {"messages": [*CHAT["messages"], {"role": "assistant", "content": "4"}]}


def model(
    *, dtype: str = "bfloat16", max_length: int | None = 512, tokenizer: str = "/m", tokenizer_above: str = ""
) -> ModelFacts:
    return ModelFacts(
        where="/m",
        weights_bytes=1,
        dtype=dtype,
        max_length=max_length,
        tokenizer=tokenizer,
        has_chat_template=True,
        tokenizer_above=tokenizer_above,
    )


def engine(
    *, on_cpu: bool = False, free_share: float | None = 1.0, compute: tuple[int, int] = (9, 0)
) -> EngineEnvironment:
    return EngineEnvironment(
        python="python",
        version="0.31.0",
        torch="2.12",
        on_cpu=on_cpu,
        memory_bytes=80 << 30,
        free_share=free_share,
        compute_capability=compute,
    )


@pytest.mark.parametrize(
    ("facts", "found", "expected"),
    [
        (None, None, {}),
        (model(), engine(), {}),
        (model(), engine(free_share=0.5), {"gpu_memory_utilization": 0.4}),
        (model(), engine(free_share=0.01), {"gpu_memory_utilization": 0.05}),
        (model(), engine(on_cpu=True, free_share=None), {}),
        (model(), engine(compute=(7, 5)), {"dtype": "float16"}),
        (model(dtype="float32"), engine(compute=(7, 5)), {}),
        (model(max_length=131072), engine(), {"max_model_len": 8192}),
        (model(tokenizer="", tokenizer_above="/out"), engine(), {"args": ("--tokenizer", "/out")}),
        (model(max_length=None), engine(), {}),
    ],
)
def test_the_engine_is_set_up_for_model_and_device(
    facts: ModelFacts | None, found: EngineEnvironment | None, expected: dict[str, object]
) -> None:
    assert serve_values(facts, found, longest=100) == expected


def test_long_questions_and_short_models_are_respected() -> None:
    assert serve_values(model(max_length=131072), engine(), longest=20_000) == {"max_model_len": 20_272}
    assert suite_values(model(max_length=128), longest=40) == {"max_tokens": 72}
    assert suite_values(model(max_length=8192), longest=40) == {}
    assert suite_values(model(max_length=128), longest=200) == {}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ANSWERED, ("2+2=", "4")),
        (CHAT, ("2+2=", "")),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, ("a", "b")),
        ({"instruction": "Add", "input": "2+2", "output": "4"}, ("Add\n2+2", "4")),
        ({"instruction": "Say hi", "input": "", "output": "hi"}, ("Say hi", "hi")),
        ({"prompt": "a", "completion": "b"}, ("a", "b")),
        ({"prompt": [{"role": "user", "content": "a"}], "completion": [{"content": "b"}]}, ("a", "b")),
        ({"text": "no pairs"}, ("", "")),
        ({"messages": ["broken", {"role": "user", "content": None}]}, ("", "")),
    ],
)
def test_questions_of_training_rows(row: dict[str, object], expected: tuple[str, str]) -> None:
    assert question_of(row) == expected


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/runs/my-sft", "my-sft"),
        ("/home/me/capitals/outputs", "capitals"),
        ("/home/me/capitals/Checkpoints/out", "capitals"),
        ("/outputs", "outputs"),
    ],
)
def test_a_run_is_not_named_like_every_output_folder(folder: str, name: str) -> None:
    assert run_name(PurePath(folder)) == name


def test_files_of_one_name_have_names_of_their_own_and_a_run_is_never_called_like_the_folder_above(
    tmp_path: Path,
) -> None:
    write_checkpoint(tmp_path / "out" / "checkpoint-100")
    project = tmp_path / "project"
    for folder in (tmp_path / "out", project):
        folder.mkdir(exist_ok=True)
        (folder / "facts.jsonl").write_text('{"question": "2+2=", "answer": 4}\n')
    (project / "首都.jsonl").write_bytes('{"question": "首都?", "answer": "北京"}\n'.encode("gbk"))
    said = tracker(project, "init", "../out")
    assert f"skips  {project}/首都.jsonl, line 1: not UTF-8 text\n" in said
    found = settings(project)
    assert found["run"] == {"name": tmp_path.name, "output_dir": "../out"}
    names = [(benchmark.get("name"), benchmark["data"]) for benchmark in found["benchmark"]]
    assert names == [(None, "../out/facts.jsonl"), ("project-facts", "facts.jsonl")]
    tracker(tmp_path / "out", "init", ".", "--config", "../project/tracker.toml", "--force")
    assert settings(project)["benchmark"] == found["benchmark"]


def test_a_data_folder_is_the_files_of_one_benchmark_or_of_several(tmp_path: Path) -> None:
    files = {
        "eval/colors.jsonl": {"question": "Which is red?", "choices": ["sky", "rose"], "answer": "B"},
        "eval/sums.jsonl": {"question": "2+2=", "answer": 4},
        "eval/train_sums.jsonl": {"question": "2+3=", "answer": 5},
        "eval/notes.jsonl": {"note": "to do"},
        "eval/gsm8k/test.jsonl": {"question": "2+2=", "answer": "2+2 #### 4"},
        "exam/gsm8k/test.jsonl": {"question": "3+2=", "answer": "3+2 #### 5"},
        "exam/gsm8k/train.jsonl": {"question": "4+2=", "answer": "4+2 #### 6"},
        "none/notes.jsonl": {"note": "to do"},
    }
    for name, row in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    said = tracker(tmp_path, "init", "out", "--data", "eval", "--data", "exam")
    assert "skips  eval/notes.jsonl, line 1: missing" in said.replace(f"{tmp_path}/", "")
    assert settings(tmp_path)["benchmark"] == [
        {"benchmark": "choice", "data": "eval/colors.jsonl"},
        {"benchmark": "gsm8k", "data": "eval/gsm8k", "few_shot": 0},
        {"benchmark": "exact", "data": "eval/sums.jsonl"},
        {"benchmark": "gsm8k", "data": "exam/gsm8k", "name": "exam-gsm8k"},
    ]
    refused = run_tracker(tmp_path, "init", "out", "--force", "--data", "none")
    assert (refused.returncode, "no benchmark in none; " in refused.stderr) == (2, True)


def settings(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "tracker.toml").read_text())


def test_a_download_or_training_questions_need_a_yes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "out" / "checkpoint-100")
    (tmp_path / "notes.jsonl").write_text('{"prompt": "2+2="}\n')
    refused = run_tracker(tmp_path, "init", "out")
    assert refused.returncode == 2
    assert "notes.jsonl, line 1: missing answer" in refused.stderr
    assert "--yes to use gsm8k, 100 questions that EvalScope downloads" in refused.stderr
    assert not (tmp_path / "tracker.toml").exists()
    assert "scores gsm8k (downloaded)" in tracker(tmp_path, "init", "out", "--yes")

    rows = [{"prompt": f"{i}+1=", "completion": str(i + 1)} for i in range(1000)]
    rows.append({"prompt": "Tell me a story.", "completion": "Once upon a time. " * 20})
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert (
        "--yes to use held-out.jsonl, 200 rows of train.jsonl" in run_tracker(tmp_path, "init", "out", "--force").stderr
    )
    said = tracker(tmp_path, "init", "out", "--force", "--yes")
    assert "remove the rows of held-out.jsonl from the training data" in said
    assert settings(tmp_path)["benchmark"] == [{"benchmark": "exact", "data": "held-out.jsonl"}]
    questions = [json.loads(line) for line in (tmp_path / "held-out.jsonl").read_text().splitlines()]
    assert (questions[0], questions[-1]) == (
        {"question": "0+1=", "answer": "1"},
        {"question": "995+1=", "answer": "996"},
    )


def test_a_configuration_is_not_written_into_a_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "out" / "checkpoint-100")
    place = "out/checkpoint-100/tracker.toml"
    done = run_tracker(tmp_path, "init", "out", "--yes", "--config", place)
    assert (done.returncode, f"{place} is inside a checkpoint of the trainer" in done.stderr) == (2, True)
    assert not (tmp_path / place).exists()


def test_a_folder_without_checkpoints_is_used_unless_the_run_is_further_down(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "work" / "capitals" / "outputs" / "checkpoint-100")
    (tmp_path / "facts.jsonl").write_text('{"question": "2+2=", "answer": 4}\n')
    refused = run_tracker(tmp_path, "init", "work")
    assert refused.returncode == 2
    assert f"`tracker init {tmp_path}/work/capitals/outputs`" in refused.stderr
    assert not (tmp_path / "tracker.toml").exists()
    said = tracker(tmp_path, "init", "work", "--yes")
    assert f"found  no folder in {tmp_path}/work has the name of a checkpoint; it contains capitals\n" in said
    assert "hint: set watch.pattern" in said
    inside = run_tracker(tmp_path, "init", "work/capitals/outputs/checkpoint-100", "--force")
    assert (inside.returncode, "is a checkpoint, not the output" in inside.stderr) == (2, True)
    assert f"`tracker init {tmp_path}/work/capitals/outputs`" in inside.stderr
    exists = run_tracker(tmp_path, "init", "work/capitals/outputs")
    assert (exists.returncode, "use --force to overwrite it" in exists.stderr) == (2, True)

    said = tracker(tmp_path, "init", "new", "--force", "--config", "my new.toml")
    assert f"found  {tmp_path}/new does not exist yet" in said
    assert "next   tracker doctor --config 'my new.toml'\n" in said
    (tmp_path / "new").mkdir()
    said = tracker(tmp_path, "init", "new", "--force")
    assert f"found  no checkpoint in {tmp_path}/new yet" in said
    for name in ("ckpt_500.pt", "ckpt_1000.pt"):
        (tmp_path / "new" / name).write_bytes(b"torch")
    expected = f"no checkpoint folder in {tmp_path}/new, but ckpt_1000.pt and ckpt_500.pt: such files cannot be"
    refused = run_tracker(tmp_path, "init", "new", "--force")
    assert (refused.returncode, f"{expected} evaluated\n  hint: write each" in refused.stderr) == (2, True)
    assert f"found  {expected} evaluated\n       hint: write" in tracker(tmp_path, "init", "new", "--force", "--yes")
    assert expected.replace(" ", "") in "".join(run_tracker(tmp_path, "doctor", "--for", "evaluation").stdout.split())
    assert settings(tmp_path)["run"]["name"] == "new"
    tracker(tmp_path, "init", "work/capitals/outputs", "--force")
    assert settings(tmp_path)["run"]["name"] == "capitals"


def test_the_only_model_next_to_a_run_without_checkpoints_completes_them(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base")
    config = json.loads((base / "config.json").read_text()) | {"max_position_embeddings": 128}
    (base / "config.json").write_text(json.dumps(config))
    (tmp_path / "exam.jsonl").write_text('{"question": "2+2=", "answer": 4}\n')
    said = tracker(tmp_path, "init", "out")
    assert "model  base, for the configuration of checkpoints without one\n" in said
    assert (settings(tmp_path)["watch"]["config_from"], settings(tmp_path)["suite"]) == ("base", {"max_tokens": 108})
    (write_checkpoint(tmp_path / "old-run") / "training_args.bin").write_bytes(b"of an earlier training")
    assert "model  base, " in tracker(tmp_path, "init", "out", "--force")
    write_checkpoint(tmp_path / "other")
    assert "model  " not in tracker(tmp_path, "init", "out", "--force")
    for name in ("epoch_0", "epoch_1", "best"):
        write_checkpoint(tmp_path / "out" / name)
    said = tracker(tmp_path, "init", "out", "--force")
    assert said.startswith(
        "found  2 checkpoints up to epoch_1 (full)\n"
        "skips  out/best: not named like the checkpoints; evaluate it with `tracker evaluate FOLDER`\n"
    )
    assert "config_from" not in settings(tmp_path)["watch"]
    (tmp_path / "lit" / "step-00000100").mkdir(parents=True)
    (tmp_path / "lit" / "step-00000100" / "lit_model.pth").write_bytes(b"torch")
    said = tracker(tmp_path, "init", "lit", "--force")
    assert said.startswith(
        "found  1 checkpoint up to step-00000100 (checkpoint of LitGPT, which needs a converter)\n"
        "       hint: export it with `litgpt convert_from_litgpt`, or set watch.convert to a command that does\n"
    )


def test_what_init_writes_for_a_base_model_passes_the_doctor(tmp_path: Path) -> None:
    requires_vllm()
    saved = write_checkpoint(tmp_path / "out" / "checkpoint-100")
    path = saved / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": None}))
    (tmp_path / "out" / "data").mkdir()
    (tmp_path / "out" / "data" / "sums.jsonl").write_text(json.dumps({"question": "x" * 400, "answer": "1"}))
    (tmp_path / "out" / "mlflow.db").touch()
    said = tracker(tmp_path, "init", "out")
    assert said.splitlines()[-2:] == ["next   tracker doctor", "       tracker watch"]
    found = settings(tmp_path)
    assert found["serve"]["args"][0] == "--chat-template"
    assert found["suite"] == {"max_tokens": 512 - 400 - 16}
    assert "max_tokens = 96  # context length" in (tmp_path / "tracker.toml").read_text()
    assert found["tracking"] == {"uri": f"sqlite:///{tmp_path}/out/mlflow.db"}
    assert "0 errors" in tracker(tmp_path, "doctor", "--for", "evaluation")
