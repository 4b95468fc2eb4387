import json
import os
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs import limits
from eval_jobs.errors import BadData
from eval_jobs.types import EvalResult
from tests.evaluating import quiet
from tests.imported import TIME, bench, lm_eval, lm_eval_rows, write_lm_eval
from tracker.adapters.result_files import FoundResults, ImportRequest, read_results


def read(*paths: Path, step: int | None = None) -> FoundResults:
    return read_results(paths, ImportRequest(step=step), progress=quiet)


def test_a_folder_is_searched_to_its_bottom_and_says_what_it_passes_over(tmp_path: Path) -> None:
    write_lm_eval(tmp_path / "a" / "b", 100, {"t": [1.0, 0.0]}, samples=True)
    write_lm_eval(tmp_path, 200, {"t": [1.0, 0.0]}, samples=False)
    (tmp_path / "config.json").write_text('{"hidden_size": 4}')
    (tmp_path / "notes.json").write_text("no JSON at all")
    found = read(tmp_path)
    assert sorted(sheet.step for sheet in found.sheets) == [100, 200]
    assert [left.name for left in found.passed_over] == ["config.json", "notes.json"]


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path, 100, {"t": [1.0, 0.0]}, samples=True)
    (samples,) = results.parent.glob("samples_*.jsonl")
    assert len(read(results, tmp_path, samples).sheets) == 1


def test_a_folder_of_many_evaluations_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = write_lm_eval(tmp_path, 100, {"t": [1.0, 0.0]}, samples=False)
    for second in range(9):
        place = results.parent / f"step{second}_2026-03-02T10-00-0{second}.000001.json"
        place.write_text(results.read_text())
    listed: list[Path] = []
    glob = Path.glob

    def counted(self: Path, pattern: str, **options: bool | None) -> Iterator[Path]:  # Python 3.13 passes some
        listed.append(self)
        return glob(self, pattern, **options)

    monkeypatch.setattr(Path, "glob", counted)
    assert len(read_results([tmp_path], ImportRequest(step=5), progress=quiet).sheets) == 10
    assert listed.count(results.parent) == 1


def test_the_rows_of_one_task_at_a_time_are_in_memory(tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path, 100, {f"t{k}": [1.0, 0.0] for k in range(9)}, samples=True)
    for samples in results.parent.glob("samples_*.jsonl"):
        rows = [json.loads(line) | {"unused": "x" * (1 << 20)} for line in samples.read_text().splitlines()]
        samples.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tracemalloc.start()
    try:
        (sheet,) = read(results).sheets
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(one.outcome.samples) for one in sheet.measured if isinstance(one.outcome, EvalResult)] == [2] * 9
    assert peak_bytes < 9 << 20  # all together take 18 MiB


def test_samples_of_another_evaluation_in_the_same_folder_are_not_taken(tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path, 100, {"t": [1.0, 0.0]}, samples=False)
    (results.parent / "samples_t_2026-03-02T10-00-00.000001.jsonl").write_text(json.dumps(lm_eval_rows([0.0])[0]))
    (one,) = read(results).sheets[0].measured
    assert isinstance(one.outcome, EvalResult)
    assert one.outcome.aggregate is not None


def test_the_folder_of_a_file_says_its_step_too(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint-700"
    place.mkdir()
    (place / "serve.json").write_text(json.dumps(bench(model_id="m")))
    assert [sheet.step for sheet in read(place / "serve.json").sheets] == [700]
    assert [sheet.step for sheet in read(place).sheets] == [700]
    assert [sheet.step for sheet in read(tmp_path).sheets] == [700]


def test_a_folder_above_the_one_that_was_named_says_nothing(tmp_path: Path) -> None:
    place = tmp_path / "step1" / "evals" / "deeper"
    place.mkdir(parents=True)
    (place / "serve.json").write_text(json.dumps(bench(model_id="m")))
    with pytest.raises(BadData, match="cannot determine the training step"):
        read(tmp_path / "step1" / "evals")


def test_half_a_surrogate_pair_is_no_obstacle(tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path, 100, {"t": [1.0]}, samples=False)
    rows = lm_eval_rows([1.0], target="\ud800")
    (results.parent / f"samples_t_{TIME}.jsonl").write_text(json.dumps(rows[0]))
    (one,) = read(results).sheets[0].measured
    assert isinstance(one.outcome, EvalResult)
    assert one.outcome.samples[0].target == "?"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 100_000, " as JSON: "),
        (b"\xff\xfe", " as JSON: "),
        ("[]", "is not a JSON object"),
        (json.dumps(lm_eval({"t": 0.5}, date=1e17)), "`date` is not a Unix timestamp"),
        (
            '{"results": {"t": {"acc": [0.5]}}, "checkpoints": [1e300]}',
            "`checkpoints` is a list of size 1 (expected a list of numbers)",
        ),
        ('{"results": {"t": {"acc": [0.5]}}, "checkpoints": [0.5]}', "`checkpoints` must be a list of steps, not 0.5"),
        (json.dumps(lm_eval({"t": 0.5}) | {"n-samples": {"t": {"effective": 10**90}}}), "a very large number"),
        (
            json.dumps(lm_eval({"t": 0.5}) | {"n-samples": {"t": {"effective": -1}}}),
            "`n-samples.t.effective` is -1 (expected",
        ),
        ('{"results": {"t": {"acc": ' + "9" * 5000 + "}}}", "as JSON: a number has 5000 digits"),
    ],
)
def test_hostile_files_are_refused_by_name(tmp_path: Path, content: str | bytes, said: str) -> None:
    file = tmp_path / "results_step1000.json"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadData) as caught:
        read(file)
    assert said in caught.value.message
    assert file.name in caught.value.message


def test_a_score_of_many_digits_is_a_failure_and_no_crash(tmp_path: Path) -> None:
    file = tmp_path / "step1.json"
    file.write_text('{"results": {"t": {"acc": ' + "9" * 90 + '}}, "versions": {}}')
    (one,) = read(file).sheets[0].measured
    assert not isinstance(one.outcome, EvalResult)


def test_results_of_several_models_in_one_evaluation_are_refused(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "task_config.yaml").write_text("model: x\n")
    for model in ("a", "b"):
        (tmp_path / "reports" / model).mkdir(parents=True)
        (tmp_path / "reports" / model / "t.json").write_text("{}")
    with pytest.raises(BadData, match="contains results of 2 models: a, b"):
        read(tmp_path, step=1)


def test_thousands_of_evaluations_are_told_apart_from_other_files_without_comparing_each_with_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 31):
        place = tmp_path / f"checkpoint-{step}"
        (place / "configs").mkdir(parents=True)
        (place / "configs" / "task_config.yaml").write_text("model: x\n")
        (place / "reports" / "x").mkdir(parents=True)
        (place / "reports" / "x" / "t.json").write_text('{"dataset_name": "t", "score": 0.5}')
    compared: list[Path] = []
    inside = Path.is_relative_to

    def counted(self: Path, other: Path) -> bool:
        compared.append(self)
        return inside(self, other)

    monkeypatch.setattr(Path, "is_relative_to", counted)
    found = read(tmp_path)
    assert (len(found.sheets), found.passed_over) == (30, ())
    assert len(compared) <= 10 * 30


@pytest.mark.parametrize("text", ["- a list", "{", "key: !!python/object/apply:os.system [ls]"])
def test_settings_of_an_evaluation_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "task_config.yaml").write_text(text)
    with pytest.raises(BadData, match=r"task_config\.yaml"):
        read(tmp_path, step=1)


def test_files_of_any_size_are_refused_by_name_and_not_read(tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path, 100, {"t": [1.0, 0.0]}, samples=True)
    (samples,) = results.parent.glob("samples_*.jsonl")
    os.truncate(samples, 8 << 30)
    with pytest.raises(BadData, match=rf"{samples.name}, line 0: .*is larger than 512 MiB"):
        read(results)
    os.truncate(results, 8 << 30)
    with pytest.raises(BadData, match=rf"{results.name} as JSON: is larger than 128 MiB"):
        read(results)


def test_a_count_that_the_samples_contradict_fills_no_memory_and_doubles_no_score(tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path, 100, {"t": [1.0, 0.0]}, samples=True)
    document = json.loads(results.read_text())
    document["n-samples"]["t"]["effective"] = 10**17
    results.write_text(json.dumps(document))
    with pytest.raises(BadData, match="the file reports 100000000000000000 samples and contains 2"):
        read(results)
    document["n-samples"]["t"]["effective"] = 1
    results.write_text(json.dumps(document))
    (sheet,) = read(results).sheets
    assert "2 samples, but 1 evaluated" in sheet.left_out[0].reason


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (BOMB, "is larger than 2,000,000 values"),
        (MERGES, "could not determine a constructor"),
        ("a: " + "9" * 5000, "digits"),
        ("x" * (2 << 20), "is larger than 1 MiB"),
    ],
    ids=["aliases", "merges", "digits", "bytes"],
)
def test_settings_that_would_fill_the_memory_are_refused(tmp_path: Path, settings: str, said: str) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "task_config.yaml").write_text(settings)
    with pytest.raises(BadData, match=said) as caught:
        read(tmp_path, step=1)
    assert "task_config.yaml" in caught.value.message


def test_settings_that_contain_themselves_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VALUES", replace(limits.VALUES, most=2000))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "task_config.yaml").write_text("a: &a [*a]\n")
    with pytest.raises(BadData, match=r"task_config\.yaml.* is larger than 2,000 values"):
        read(tmp_path, step=1)


def test_odd_times_and_groups_of_an_evaluation_are_no_obstacle(tmp_path: Path) -> None:
    for kind, row in (
        ("predictions", {"index": 0, "model_output": {"choices": [{"stop_reason": "stop"}], "time": 1e308}}),
        ("reviews", {"index": 0, "sample_score": {"group_id": [1], "score": {"value": {"acc": 1.0}}}}),
    ):
        (tmp_path / kind / "m").mkdir(parents=True)
        (tmp_path / kind / "m" / "t_default.jsonl").write_text(json.dumps(row))
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "task_config.yaml").write_text("same: &a [1]\nagain: *a\ndataset_args: {t: {}}\n")
    os.utime(tmp_path, (10**12, 10**12))
    (one,) = read(tmp_path, step=1).sheets[0].measured
    assert isinstance(one.outcome, EvalResult)
    assert (one.outcome.samples[0].score, one.outcome.samples[0].answer_ms) == (1.0, None)
