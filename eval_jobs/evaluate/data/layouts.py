"""Raw files of public benchmarks -> the rows that EvalScope's adapters expect. Pure: names and rows in, rows out.

EvalScope loads a local folder through `datasets`, which needs a README with `configs:`. A user's raw folder has none,
so it is copied, row by row, into one JSONL file per config and split, and `readme` returns the header.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

Row = Mapping[str, object]

DATA_SUFFIXES = (".jsonl", ".json", ".csv")
"""Of data files in raw folders."""


@dataclass(frozen=True, kw_only=True)
class DatasetSplit:
    """Which config and split a file's rows belong to."""

    config: str
    split: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How one benchmark's raw folder is read."""

    expects: str
    """For error messages: the files and keys that are supported."""
    part: Callable[[PurePath], DatasetSplit | None]
    """Relative path of a file -> config and split of its rows; None: not a data file of this benchmark."""
    convert: Callable[[Row, PurePath], Row]
    """One row -> the adapter's row. Raises KeyError, ValueError, TypeError or IndexError for an invalid row."""
    eval_split: str
    fallback_split: str = ""
    """Evaluated for a config without `eval_split`."""
    header: tuple[str, ...] = ()
    """Columns of CSV files that have no header line."""
    configs_are_subsets: bool = True


@dataclass(frozen=True, kw_only=True)
class CachedDataset:
    """A finished copy of a benchmark's data, which EvalScope may change (`dataset_cache`)."""

    folder: Path
    subsets: tuple[str, ...]
    """Subsets that can be evaluated; () if only EvalScope can list them."""


def readme(parts: Iterable[DatasetSplit]) -> str:
    """Return the README header with which `datasets` finds `split_file_name(part)` for every part."""
    by_config: dict[str, list[DatasetSplit]] = {}
    for part in sorted(set(parts), key=lambda p: (p.config, p.split)):
        by_config.setdefault(part.config, []).append(part)
    lines = ["---", "configs:"]
    for config, splits in by_config.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for part in splits:
            lines += [f"  - split: {part.split}", f"    path: {split_file_name(part)}"]
    return "\n".join([*lines, "---", ""])


def split_file_name(part: DatasetSplit) -> str:
    """Return the name of a part's file in the copy."""
    return f"{part.config}_{part.split}.jsonl"


def evaluated(layout: Layout, parts: Iterable[DatasetSplit]) -> dict[DatasetSplit, DatasetSplit]:
    """Map each part found to the part it becomes: a config without the evaluated split uses the fallback for it."""
    found = set(parts)
    result = {}
    for part in found:
        main = DatasetSplit(config=part.config, split=layout.eval_split)
        falls_back = part.split == layout.fallback_split and main not in found
        result[part] = main if falls_back else part
    return result


def _split_by_name(config: str, splits: Mapping[str, str]) -> Callable[[PurePath], DatasetSplit | None]:
    """Return a rule: a file with a word of `splits` in its path, such as `test`, is that split of `config`."""

    def part(path: PurePath) -> DatasetSplit | None:
        words = re.split(r"[^a-z]+", str(path.with_suffix("")).lower())
        split = next((split for word, split in splits.items() if word in words), None)
        if split is None:
            return None
        return DatasetSplit(config=config, split=split)

    return part


def _kept(row: Row, *keys: str) -> dict[str, object]:
    return {key: row[key] for key in keys}


def _gsm8k(row: Row, _: PurePath) -> Row:
    if "####" not in str(row["answer"]):
        raise ValueError("`answer` has no `#### result`")
    return _kept(row, "question", "answer")


def _subject(path: PurePath) -> str:
    return re.sub(r"_(test|dev|val|validation)$", "", path.stem)


def _mmlu(row: Row, path: PurePath) -> Row:
    choices = row["choices"] if "choices" in row else [row[letter] for letter in "ABCD"]
    answer = row["answer"]
    index = "ABCD".index(answer) if isinstance(answer, str) and not answer.isdecimal() else int(str(answer))
    if not isinstance(choices, list) or not 0 <= index < len(choices):
        raise ValueError("`answer` is not one of the `choices`")
    subject = row.get("subject") or _subject(path)
    return {"question": row["question"], "subject": subject, "choices": choices, "answer": index}


def _arc_part(path: PurePath) -> DatasetSplit | None:
    name = str(path).lower()
    config = next((c for c in ("ARC-Easy", "ARC-Challenge") if c.lower() in name), None)
    split = next((s for word, s in _ARC_SPLITS.items() if word in name), None)
    if config is None or split is None:
        return None
    return DatasetSplit(config=config, split=split)


def _arc(row: Row, _: PurePath) -> Row:
    question, choices = row["question"], row.get("choices")
    if isinstance(question, dict):  # AllenAI's own files nest the choices in the question
        choices = {"text": [c["text"] for c in question["choices"]], "label": [c["label"] for c in question["choices"]]}
        question = question["stem"]
    if not isinstance(choices, dict) or row["answerKey"] not in choices["label"]:
        raise ValueError("`answerKey` is not one of the labels in `choices`")
    # EvalScope reads only A, B, ... and 1, 2, ...: the position means the same in every file.
    key = "ABCDEFGH"[choices["label"].index(row["answerKey"])]
    return {"id": str(row.get("id", "")), "question": question, "choices": choices, "answerKey": key}


def _bbh_part(path: PurePath) -> DatasetSplit | None:
    if re.fullmatch(r"[a-z_]+", path.stem):
        return DatasetSplit(config=path.stem, split="test")
    return None


def _truthful_qa(row: Row, _: PurePath) -> Row:
    if "mc1_targets" in row:
        return {
            "question": row["question"],
            "mc1_targets": _mc_targets(row["mc1_targets"]),
            "mc2_targets": _mc_targets(row["mc2_targets"]),
        }
    best = str(row["Best Answer"]).strip()
    right, wrong = _listed(row["Correct Answers"]), _listed(row["Incorrect Answers"])
    if not best or not wrong:
        raise ValueError("`Best Answer` or `Incorrect Answers` is empty")
    return {
        "question": row["Question"],
        "mc1_targets": {"choices": [best, *wrong], "labels": [1] + [0] * len(wrong)},
        "mc2_targets": {"choices": [*right, *wrong], "labels": [1] * len(right) + [0] * len(wrong)},
    }


def _mc_targets(value: object) -> Row:
    if not isinstance(value, dict):
        raise TypeError("`mc1_targets` and `mc2_targets` must be objects")
    if "choices" in value:
        return {"choices": value["choices"], "labels": value["labels"]}
    return {"choices": list(value), "labels": list(value.values())}


def _listed(text: object) -> list[str]:
    return [part.strip() for part in str(text).split(";") if part.strip()]


def _mmlu_pro(row: Row, _: PurePath) -> Row:
    kept = _kept(row, "question", "options", "answer", "category")
    return kept | {"cot_content": row.get("cot_content") or "", "question_id": row.get("question_id", 0)}


def _cmmlu(row: Row, path: PurePath) -> Row:
    if "choices" in row:
        return _kept(row, "question", "choices", "answer", "category")
    letter = str(row["Answer"]).strip()
    if letter not in set("ABCD"):
        raise ValueError("`Answer` is not one of A, B, C, D")
    choices = [f"({c}) {row[c]}" for c in "ABCD"]
    return {"question": row["Question"], "choices": choices, "answer": f"({letter})", "category": _subject(path)}


def _ceval_part(path: PurePath) -> DatasetSplit | None:
    match = re.fullmatch(r"(.+)_(dev|val)", path.stem)
    if match:
        return DatasetSplit(config=match.group(1), split=match.group(2))
    if path.parent.name in ("dev", "val"):
        return DatasetSplit(config=path.stem, split=path.parent.name)
    return None


def _ceval(row: Row, _: PurePath) -> Row:
    kept = _kept(row, "question", "A", "B", "C", "D", "answer")
    return kept | {"id": row.get("id", 0), "explanation": row.get("explanation") or ""}


_ARC_SPLITS = {"train": "train", "test": "test", "validation": "validation", "dev": "validation", "val": "validation"}
_MMLU_HEADER = ("question", "A", "B", "C", "D", "answer")

LAYOUTS: Mapping[str, Layout] = {
    "gsm8k": Layout(
        expects="test.jsonl (and train.jsonl for few-shot) with `question` and `answer`",
        part=_split_by_name("main", {"test": "test", "train": "train"}),
        convert=_gsm8k,
        eval_split="test",
    ),
    "mmlu": Layout(
        expects="<subject>_test.jsonl or .csv (and <subject>_dev for few-shot) with `question`, `choices`, `answer`",
        part=_split_by_name("all", {"test": "test", "dev": "dev"}),
        convert=_mmlu,
        eval_split="test",
        header=_MMLU_HEADER,
        configs_are_subsets=False,
    ),
    "arc": Layout(
        expects="ARC-Easy-Test.jsonl, ARC-Challenge-Test.jsonl (or validation) with `question`, `choices`, `answerKey`",
        part=_arc_part,
        convert=_arc,
        eval_split="test",
        fallback_split="validation",
    ),
    "bbh": Layout(
        expects='<task>.json with {"examples": [...]} or <task>.jsonl, rows with `input` and `target`',
        part=_bbh_part,
        convert=lambda row, _: _kept(row, "input", "target"),
        eval_split="test",
    ),
    "truthful_qa": Layout(
        expects="TruthfulQA.csv, or rows with `question`, `mc1_targets` and `mc2_targets` in mc_task.json or a .jsonl",
        part=lambda _: DatasetSplit(config="multiple_choice", split="validation"),
        convert=_truthful_qa,
        eval_split="validation",
    ),
    "ifeval": Layout(
        expects="a .jsonl with `key`, `prompt`, `instruction_id_list` and `kwargs`",
        part=lambda _: DatasetSplit(config="default", split="train"),
        convert=lambda row, _: _kept(row, "key", "prompt", "instruction_id_list", "kwargs"),
        eval_split="train",
        configs_are_subsets=False,
    ),
    "mmlu_pro": Layout(
        expects="test.jsonl (and validation.jsonl for few-shot) with `question`, `options`, `answer`, `category`",
        part=_split_by_name("default", {"test": "test", "validation": "validation"}),
        convert=_mmlu_pro,
        eval_split="test",
        configs_are_subsets=False,
    ),
    "cmmlu": Layout(
        expects="test/<subject>.csv (and dev/<subject>.csv) with `Question`, `A` to `D`, `Answer`",
        part=_split_by_name("default", {"test": "test", "dev": "dev"}),
        convert=_cmmlu,
        eval_split="test",
        configs_are_subsets=False,
    ),
    "ceval": Layout(
        expects="val/<subject>_val.csv (and dev/<subject>_dev.csv) with `question`, `A` to `D`, `answer`",
        part=_ceval_part,
        convert=_ceval,
        eval_split="val",
    ),
}
