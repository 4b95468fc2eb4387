import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eval_jobs import limits
from eval_jobs.errors import BadData
from eval_jobs.evaluate.data.files import benchmark_of_folder, check_benchmark, read_data_digest, read_items
from eval_jobs.types import Benchmark


def jsonl(path: Path, rows: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def exact(path: Path, **fields: object) -> Benchmark:
    return Benchmark(name="b", adapter="exact", data=str(path), **fields)  # type: ignore[arg-type]


GOOD = {"question": "2+2=", "answer": "4"}


def test_a_sound_file_passes(tmp_path: Path) -> None:
    check_benchmark(exact(jsonl(tmp_path / "a.jsonl", [GOOD] * 3)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"question": "q", "answer": "a"}\n{"question": "q"\n', "line 2: invalid JSON"),
        (b'{"question": "q", "answer": "a"}\n\n{"answer": "a"}\n', "line 3: missing question"),
        (b'{"question": "q", "answer": "a"}\n["q", "a"]\n', "line 2: expected a JSON object, got"),
        (b'[{"question": "q", "answer": "a"}]\n', "line 1: expected a JSON object, got"),
        (b'[\n{"question": "q", "answer": "a"}\n]\n', "line 1: a JSON list; JSONL needs one object per line"),
        (b'{"question": "q", "answer": "a"}\n{"question": "\xff", "answer": "a"}\n', "line 2: not UTF-8"),
        (b'{"question": "q", "answer": "a"}\n{"question": "q", "ans', "line 2: invalid JSON"),
        (b"[" * 100_000, "line 1: "),
        (b"", "no rows in"),
        (b"\n \n", "no rows in"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadData) as caught:
        check_benchmark(exact(path))
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert caught.value.exit_code == 2


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"question": "q", "answer": "a"}\r\n\r\n{"question": "r", "answer": "b"}\r\n')
    assert [item.question for item in read_items(exact(path))] == ["q", "r"]


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"cannot read .*nothing\.jsonl: No such file"):
        check_benchmark(exact(tmp_path / "nothing.jsonl"))
    with pytest.raises(BadData, match="is a folder"):
        check_benchmark(exact(tmp_path))
    with pytest.raises(BadData, match="has no data"):
        check_benchmark(Benchmark(name="b", adapter="choice"))
    with pytest.raises(BadData, match="no data for `b` at"):
        check_benchmark(Benchmark(name="b", adapter="gsm8k", data=str(tmp_path / "nothing")))
    with pytest.raises(BadData, match="no data at"):
        read_data_digest(tmp_path / "nothing")


def test_settings_that_an_own_adapter_cannot_use_are_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [GOOD])
    with pytest.raises(BadData, match="does not support few_shot"):
        check_benchmark(exact(path, few_shot=3))
    with pytest.raises(BadData, match="has no subset `hard`") as caught:
        check_benchmark(exact(path, subsets=("default", "hard")))
    assert "default" in caught.value.hint


def test_a_template_that_would_fail_later_is_refused_now(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [GOOD])
    for template in ("no field", "{question} {wrong}", "{question", "{question} {}", "{0} {question}"):
        with pytest.raises(BadData, match="prompt_template"):
            check_benchmark(exact(path, prompt_template=template))
    check_benchmark(exact(path, prompt_template='{{"q": "{question}"}}'))


def test_an_unknown_subset_of_a_known_benchmark_is_refused() -> None:
    with pytest.raises(BadData, match="has no subset `ARC-Hard`") as caught:
        check_benchmark(Benchmark(name="arc", adapter="arc", subsets=("ARC-Hard",)))
    assert "ARC-Easy" in caught.value.hint


def test_the_digest_is_of_content_and_names_not_of_place_time_or_hidden_files(tmp_path: Path) -> None:
    for place in ("here", "there"):
        jsonl(tmp_path / place / "sub" / "a.jsonl", [GOOD])
        jsonl(tmp_path / place / "b.jsonl", [GOOD])
    (tmp_path / "there" / ".cache").mkdir()
    (tmp_path / "there" / ".cache" / "x").write_text("x")
    digest = read_data_digest(tmp_path / "here")
    assert read_data_digest(tmp_path / "there") == digest
    assert len(digest) == 64
    (tmp_path / "here" / "b.jsonl").rename(tmp_path / "here" / "c.jsonl")
    renamed = read_data_digest(tmp_path / "here")
    jsonl(tmp_path / "here" / "c.jsonl", [GOOD, GOOD])
    assert len({digest, renamed, read_data_digest(tmp_path / "here")}) == 3


def test_the_digest_of_a_file_is_of_its_bytes_alone(tmp_path: Path) -> None:
    one = jsonl(tmp_path / "a.jsonl", [GOOD])
    two = jsonl(tmp_path / "b.jsonl", [GOOD])
    assert read_data_digest(one) == read_data_digest(str(two))
    with two.open("ab") as file:
        file.write(b"\n")
    assert read_data_digest(one) != read_data_digest(two)


def test_two_files_whose_contents_moved_between_them_differ(tmp_path: Path) -> None:
    for folder, texts in (("x", "12"), ("y", "21")):
        (tmp_path / folder).mkdir()
        for name, text in zip("ab", texts, strict=True):
            (tmp_path / folder / name).write_text(text)
    assert read_data_digest(tmp_path / "x") != read_data_digest(tmp_path / "y")


def test_what_would_fill_the_memory_or_wait_for_ever_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ROW", replace(limits.ROW, most=1 << 20))
    monkeypatch.setattr(limits, "ROWS", replace(limits.ROWS, most=3))
    for name in ("endless.jsonl", "endless.csv"):
        (tmp_path / name).write_bytes(b'"q' + b"x" * (2 << 20))
    sparse = (tmp_path / "sparse.json", tmp_path / "sparse.jsonl")
    for path in sparse:
        path.touch()
        os.truncate(path, 20 << 30)
    jsonl(tmp_path / "many.jsonl", [{"question": n, "answer": n} for n in range(4)])
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "field.csv").write_text("question,answer\n" + '"' + "line\n" * 300_000)
    for name, message in (
        ("endless.jsonl", "line 1: is larger than 1 MiB"),
        ("endless.csv", "line 1: is larger than 1 MiB"),
        ("field.csv", "invalid CSV"),
        ("sparse.json", "is larger than 64 MiB"),
        ("sparse.jsonl", "line 1: is larger than 1 MiB"),
        ("many.jsonl", "line 4: is larger than 3 rows"),
        ("pipe.jsonl", "cannot read"),
    ):
        with pytest.raises(BadData, match=message):
            check_benchmark(exact(tmp_path / name))
    with pytest.raises(BadData, match="cannot read /dev/zero"):
        check_benchmark(exact(Path("/dev/zero")))
    with pytest.raises(BadData, match=r"sparse\.jsonl is larger than 16 GiB"):
        read_data_digest(sparse[1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD, {"question": " 2+2= ", "answer": "5"}], "line 2: the question of line 1 with another answer"),
        (
            [GOOD, GOOD, {"question": "2+2=", "answer": ["4", "5"]}],
            "line 3: the question of line 1 with another answer",
        ),
        ([{"question": "q", "answer": float("nan")}], "line 1: the answer is nan, not a finite number"),
        ([{"question": float("inf"), "answer": "a"}], "line 1: the question is inf, not a finite number"),
        ([GOOD | {"cluster": float("nan")}], "line 1: the cluster is nan, not a finite number"),
        ([GOOD | {"cluster": "\ud800"}], "line 1: the cluster contains an unpaired surrogate"),
        ([{"question": "q", "answer": int("9" * 4000)}], "line 1: a number has 4000 digits"),
    ],
)
def test_a_row_without_one_sound_answer_is_refused(tmp_path: Path, rows: Sequence[object], message: str) -> None:
    with pytest.raises(BadData, match=message):
        check_benchmark(exact(jsonl(tmp_path / "a.jsonl", rows)))


def test_the_choices_decide_whether_a_question_is_the_same(tmp_path: Path) -> None:
    red = {"question": "Which is red?", "choices": ["sky", "rose"], "answer": "B"}
    choice = Benchmark(name="b", adapter="choice", data=str(tmp_path / "a.jsonl"))
    jsonl(tmp_path / "a.jsonl", [red, red | {"choices": ["rose", "grass"], "answer": "A"}])
    assert check_benchmark(choice) == ()
    shuffled = red | {"choices": ["rose", "sky"], "answer": "A"}
    jsonl(tmp_path / "a.jsonl", [red, shuffled])
    assert check_benchmark(choice) == ()
    jsonl(tmp_path / "a.jsonl", [red, shuffled, shuffled | {"choices": ["rose ", "sky"]}])
    assert check_benchmark(choice) == (f"{tmp_path}/a.jsonl: 1 row repeats an earlier one, first in line 3",)
    jsonl(tmp_path / "a.jsonl", [red, red | {"choices": ["rose", "sky"]}])
    with pytest.raises(BadData, match="line 2: the question of line 1 with another answer"):
        check_benchmark(choice)


def test_repeated_rows_are_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [GOOD] * 9)
    assert check_benchmark(exact(path)) == (f"{path}: 8 rows repeat an earlier one, first in line 2, 3, 4, 5, 6",)


def test_a_folder_is_the_benchmark_after_which_it_is_named(tmp_path: Path) -> None:
    solved, exam = {"question": "2+2=", "answer": "#### 4"}, {"question": "2+2=", "choices": ["3", "4"], "answer": 1}
    for folder, names, row, found in (
        ("GSM-8K", ["test.jsonl", "train.jsonl", "notes.jsonl"], solved, ("gsm8k", None)),
        ("mmlu", ["law_test.jsonl"], exam, ("mmlu", 0)),
        ("mine", ["law_test.jsonl"], exam, None),
    ):
        for name in names:
            jsonl(tmp_path / folder / name, [row])
        known = benchmark_of_folder(tmp_path / folder)
        assert (known and (known.adapter, known.few_shot)) == found, folder
    jsonl(tmp_path / "gsm8k" / "test.jsonl", [GOOD])
    with pytest.raises(BadData, match=r"gsm8k/test\.jsonl, line 1: `answer` has no `#### result`"):
        benchmark_of_folder(tmp_path / "gsm8k")


def test_a_data_folder_with_a_broken_link_is_refused_because_a_part_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(BadData, match=r"test\.jsonl is a broken link or not a regular file"):
        read_data_digest(tmp_path)


def test_a_card_of_any_size_is_read_up_to_its_header(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text("---\nconfigs:\n---\n")
    os.truncate(card, 20 << 30)
    check_benchmark(Benchmark(name="b", adapter="gsm8k", data=str(tmp_path)))
