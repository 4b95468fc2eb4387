"""Raw folders of public benchmarks: what is understood, what is refused, and what EvalScope gets."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.dataset_cache import open_cached_dataset
from eval_jobs.evaluate.data.files import check_benchmark
from eval_jobs.evaluate.data.layouts import CachedDataset
from eval_jobs.types import Benchmark
from tests.requires import shared_data

MMLU_ROW = {"question": "q", "subject": "anatomy", "choices": ["a", "b", "c", "d"], "answer": 2}
ARC_ROW = {"id": "x1", "question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}


def folder(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def cached_copy(tmp_path: Path, adapter: str, files: Mapping[str, str]) -> CachedDataset:
    data = folder(tmp_path / "data", files)
    benchmark = Benchmark(name="b", adapter=adapter, data=str(data), few_shot=0)
    check_benchmark(benchmark)
    cached = open_cached_dataset(benchmark, tmp_path / "cache")
    assert cached is not None
    return cached


def rows(cached: CachedDataset, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (cached.folder / name).read_text(encoding="utf-8").splitlines()]


def test_gsm8k_gets_a_header_that_names_its_splits(tmp_path: Path) -> None:
    row = json.dumps({"question": "q", "answer": "so #### 4", "extra": 1})
    cached = cached_copy(tmp_path, "gsm8k", {"test.jsonl": row, "train.jsonl": row, "SOURCE.md": "x"})
    assert rows(cached, "main_test.jsonl") == [{"question": "q", "answer": "so #### 4"}]
    assert (cached.folder / "README.md").read_text() == (
        "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: test\n    path: main_test.jsonl\n"
        "  - split: train\n    path: main_train.jsonl\n---\n"
    )
    assert cached.subsets == ("main",)


def test_mmlu_is_read_from_rows_and_from_the_original_csv(tmp_path: Path) -> None:
    files = {
        "anatomy_test.jsonl": json.dumps(MMLU_ROW),
        "test/world_religions_test.csv": '"Who, then?",w,x,y,z,D\n',
        "dev/world_religions_dev.csv": "question,A,B,C,D,answer\nWho?,w,x,y,z,A\n",
    }
    cached = cached_copy(tmp_path, "mmlu", files)
    assert rows(cached, "all_test.jsonl") == [
        MMLU_ROW,
        {"question": "Who, then?", "subject": "world_religions", "choices": ["w", "x", "y", "z"], "answer": 3},
    ]
    assert rows(cached, "all_dev.jsonl")[0]["answer"] == 0


def test_arc_uses_the_validation_split_where_there_is_no_test_split(tmp_path: Path) -> None:
    official = {
        "id": "x2",
        "question": {"stem": "q", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]},
        "answerKey": "B",
    }
    files = {
        "ARC-Easy-validation.jsonl": json.dumps(ARC_ROW),
        "ARC-Challenge-Test.jsonl": json.dumps(official),
        "ARC-Challenge-Dev.jsonl": json.dumps(official),
    }
    cached = cached_copy(tmp_path, "arc", files)
    assert cached.subsets == ("ARC-Challenge", "ARC-Easy")
    assert rows(cached, "ARC-Easy_test.jsonl")[0]["answerKey"] == "B"
    assert rows(cached, "ARC-Challenge_test.jsonl") == [
        {"id": "x2", "question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "B"}
    ]
    assert len(rows(cached, "ARC-Challenge_validation.jsonl")) == 1


def test_bbh_has_a_subset_per_task_file(tmp_path: Path) -> None:
    row = {"input": "True and False is", "target": "False"}
    files = {
        "boolean_expressions.json": json.dumps({"canary": "c", "examples": [row]}),
        "navigate.jsonl": json.dumps(row),
    }
    cached = cached_copy(tmp_path, "bbh", files)
    assert cached.subsets == ("boolean_expressions", "navigate")
    assert rows(cached, "navigate_test.jsonl") == [row]


def test_truthful_qa_is_read_from_its_csv_and_from_its_json(tmp_path: Path) -> None:
    csv = 'Question,Best Answer,Correct Answers,Incorrect Answers\nWhy?,Because,"Because; So","No; Never; "\n'
    cached = cached_copy(tmp_path / "csv", "truthful_qa", {"TruthfulQA.csv": csv})
    (row,) = rows(cached, "multiple_choice_validation.jsonl")
    assert row["mc1_targets"] == {"choices": ["Because", "No", "Never"], "labels": [1, 0, 0]}
    assert row["mc2_targets"] == {"choices": ["Because", "So", "No", "Never"], "labels": [1, 1, 0, 0]}
    original = [{"question": "Why?", "mc1_targets": {"Because": 1, "No": 0}, "mc2_targets": {"So": 1, "No": 0}}]
    cached = cached_copy(tmp_path / "json", "truthful_qa", {"mc_task.json": json.dumps(original)})
    (row,) = rows(cached, "multiple_choice_validation.jsonl")
    assert row["mc1_targets"] == {"choices": ["Because", "No"], "labels": [1, 0]}


def test_cmmlu_and_ceval_are_read_from_their_csv_files(tmp_path: Path) -> None:
    cmmlu = cached_copy(tmp_path / "1", "cmmlu", {"test/agronomy.csv": ",Question,A,B,C,D,Answer\n0,q,w,x,y,z,C\n"})
    assert rows(cmmlu, "default_test.jsonl") == [
        {"question": "q", "choices": ["(A) w", "(B) x", "(C) y", "(D) z"], "answer": "(C)", "category": "agronomy"}
    ]
    ceval = cached_copy(tmp_path / "2", "ceval", {"val/law_val.csv": "id,question,A,B,C,D,answer\n0,q,w,x,y,z,C\n"})
    assert ceval.subsets == ("law",)
    assert rows(ceval, "law_val.jsonl")[0]["answer"] == "C"


def test_a_folder_that_describes_itself_is_copied_as_it_is(tmp_path: Path) -> None:
    files = {
        "README.md": "---\nlicense: mit\nconfigs:\n- config_name: main\n---\n# GSM8K\n",
        "main/test.jsonl": "anything",
        "dataset_infos.json": "{}",
    }
    cached = cached_copy(tmp_path, "gsm8k", files)
    copied = {str(p.relative_to(cached.folder)): p.read_text() for p in cached.folder.rglob("*") if p.is_file()}
    assert copied == files
    assert cached.subsets == ()


@pytest.mark.parametrize(
    ("adapter", "files", "message"),
    [
        ("gsm8k", {"test.jsonl": '{"question": "q", "answer": "4"}'}, "test.jsonl, line 1: `answer` has no `####"),
        ("gsm8k", {"test.jsonl": '{"question": "q"}'}, "test.jsonl, line 1: missing key `answer`"),
        ("gsm8k", {"train.jsonl": '{"question": "q", "answer": "#### 4"}'}, "no data for `gsm8k` in"),
        ("gsm8k", {"notes.txt": "x"}, "no data for `gsm8k` in"),
        ("gsm8k", {"test.jsonl": ""}, "no data for `gsm8k` in"),
        (
            "mmlu",
            {"a_test.jsonl": json.dumps(MMLU_ROW | {"answer": 4})},
            "line 1: `answer` is not one of the `choices`",
        ),
        ("mmlu", {"a_test.jsonl": json.dumps(MMLU_ROW | {"answer": "Z"})}, "line 1: "),
        ("mmlu", {"a_test.csv": "q,a,b,c,d\n"}, "a_test.csv, line 1: expected 6 columns"),
        ("arc", {"ARC-Easy-Test.jsonl": json.dumps(ARC_ROW | {"answerKey": "C"})}, "not one of the labels"),
        ("bbh", {"navigate.json": '{"examples": 3}'}, "no list of rows in"),
        ("bbh", {"snarks.jsonl": '{"input": "q", "target": NaN}'}, "line 1: Out of range float values"),
        ("bbh", {"snarks.jsonl": '{"input": " ", "target": "a"}'}, "line 1: the question is empty"),
        ("bbh", {"snarks.jsonl": '{"input": ["q"], "target": "a"}'}, "line 1: the question must be text"),
        ("bbh", {"snarks.csv": "input,target,target\nq,a,b\n"}, "line 1: two columns have the same name"),
        (
            "arc",
            {"ARC-Easy-Test.jsonl": '{"question": "q", "choices": {"text": [], "label": {"A": 1}}, "answerKey": "A"}'},
            "line 1: 'dict' object has no attribute",
        ),
        ("bbh", {"navigate.json": '{"examples": [3]}'}, "row 1: expected a JSON object"),
        ("bbh", {"navigate.json": '{\n"examples": [}'}, "line 2: invalid JSON"),
        ("truthful_qa", {"x.csv": "Question,Best Answer\nq,a\n"}, "line 2: missing key `Correct Answers`"),
        ("truthful_qa", {"x.jsonl": '{"question": "q", "mc1_targets": 1, "mc2_targets": 2}'}, "must be objects"),
    ],
)
def test_a_raw_folder_that_cannot_be_read_is_refused_with_the_line(
    tmp_path: Path, adapter: str, files: Mapping[str, str], message: str
) -> None:
    data = folder(tmp_path / "data", files)
    with pytest.raises(BadData) as caught:
        check_benchmark(Benchmark(name="b", adapter=adapter, data=str(data)))
    assert message in caught.value.message


def test_a_subset_that_the_folder_lacks_is_refused(tmp_path: Path) -> None:
    data = folder(tmp_path, {"navigate.jsonl": '{"input": "q", "target": "a"}'})
    with pytest.raises(BadData, match="has no subset `snarks`"):
        check_benchmark(Benchmark(name="b", adapter="bbh", data=str(data), subsets=("snarks",)))


def test_examples_that_the_folder_cannot_give_are_missed_before_anything_is_served(tmp_path: Path) -> None:
    row = json.dumps({"question": "q", "answer": "#### 4"})
    data = folder(tmp_path, {"test.jsonl": row})
    benchmark = Benchmark(name="b", adapter="gsm8k", data=str(data))
    with pytest.raises(BadData, match=r"needs 4 few-shot examples, but .* has no `train` split") as caught:
        check_benchmark(benchmark)
    assert "few_shot = 0" in caught.value.hint
    check_benchmark(replace(benchmark, few_shot=0))
    folder(tmp_path, {"train.jsonl": row})
    check_benchmark(benchmark)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("adapter", "name", "n_rows"),
    [
        ("gsm8k", "gsm8k", 1319),
        ("mmlu", "mmlu", 7658),
        ("arc", "arc", 570),
        ("bbh", "bbh", 3500),
        ("truthful_qa", "truthfulqa", 790),
        ("cmmlu", "cmmlu", 1807),
        ("ifeval", "ifeval", 541),
    ],
)
def test_the_real_files_are_read_to_the_last_row(tmp_path: Path, adapter: str, name: str, n_rows: int) -> None:
    data = shared_data(f"benchmarks/{name}")
    before = sorted(p.stat().st_mtime_ns for p in data.rglob("*"))
    cached = open_cached_dataset(Benchmark(name="b", adapter=adapter, data=str(data)), tmp_path)
    assert cached is not None
    evaluated = [p for p in cached.folder.glob("*.jsonl") if not p.stem.endswith("_dev")]
    assert sum(len(p.read_text(encoding="utf-8").splitlines()) for p in evaluated) == n_rows
    assert sorted(p.stat().st_mtime_ns for p in data.rglob("*")) == before
