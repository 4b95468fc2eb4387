"""Tasks of lm-evaluation-harness over files of this machine, and its evaluator as a worker opens it."""

import json
import sys
from pathlib import Path

from eval_jobs.evaluate.data.files import read_data_digest
from eval_jobs.evaluate.lm_eval.place import installed_version
from eval_jobs.types import Benchmark, Program

GENERATE = """
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["\\n"]
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""
CHOOSE = """
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{choices.index(answer)}}}}"
doc_to_choice: "{{{{choices}}}}"
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


WITHOUT_ITS_OWN_TASKS = f"""#!{sys.executable}
import functools
from lm_eval.tasks import TaskManager
TaskManager.__init__ = functools.partialmethod(TaskManager.__init__, include_defaults=False)
from lm_eval.__main__ import cli_evaluate
cli_evaluate()
"""
"""The harness reads 14,000 files of its own tasks at every start, which takes longer than all else."""


def quick_command(folder: Path) -> str:
    """Write and return a command that is the real harness and knows no tasks of its own."""
    command = folder / "bin" / "lm_eval"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(WITHOUT_ITS_OWN_TASKS)
    command.chmod(0o755)
    return str(command)


def harness_program(command: str, **options: str) -> Program:
    """Return the program as the composition root fills it in."""
    return Program(
        name="lm-eval", version=installed_version(command), command=command, options=tuple(sorted(options.items()))
    )


def task(
    folder: Path,
    rows: list[dict[str, object]],
    *,
    name: str = "local_sums",
    form: str = GENERATE,
    command: str = "",
    **options: str,
) -> Benchmark:
    """Write a task and its data, and return its benchmark; with a `command` other than the quick one."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / f"{name}.yaml").write_text(form.format(task=name, data=data))
    return Benchmark(
        name="sums", adapter=name, data=str(folder), data_digest=read_data_digest(folder),
        program=harness_program(command or quick_command(folder.parent), **options),
    )  # fmt: skip


def sums(count: int) -> list[dict[str, object]]:
    """Return questions `0+1=` and so on."""
    return [{"question": f"{n}+1=", "answer": str(n + 1)} for n in range(count)]
