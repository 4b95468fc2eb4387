"""`tracker init FOLDER`: write a commented tracker.toml from what is in an output folder."""

import os
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import BadData, ConfigError, EvaluateError
from eval_jobs.evaluate.data.files import check_benchmark
from eval_jobs.host.storage import write_error
from eval_jobs.types import Benchmark
from tracker.adapters.checkpoints.folder.runs import FoundFolder, FoundRun, find_runs
from tracker.cli.options import config_option
from tracker.cli.settings_text import Values, commented_toml
from tracker.domain.checkpoints.listing import RawKind
from tracker.domain.records.display import count_text, one_line

EXAMPLE_BENCHMARK = {"benchmark": "gsm8k", "limit": 100}
"""Used if no data set is given: small, well known, downloaded by EvalScope."""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@config_option
@click.option("--data", multiple=True, type=click.Path(path_type=Path), help="JSONL file with questions; repeatable.")
@click.option("--name", help="Name of the run. Default: the folder's name.")
@click.option("--force", is_flag=True, help="Overwrite an existing configuration.")
def command(*, folder: Path, config_path: Path, data: tuple[Path, ...], name: str | None, force: bool) -> None:
    """Create a commented tracker.toml for FOLDER, the output folder of the trainer.

    JSONL files in FOLDER or next to it become benchmarks if each row has a question and an answer.
    """
    if config_path.exists() and not force:
        raise ConfigError(f"{config_path} already exists", hint="use --force to overwrite it, or --config FILE")
    found = find_runs(folder)
    benchmarks = tuple(_benchmark(path, config_path) for path in data) or _guessed(found, config_path)
    chosen = {
        "run": ({"name": name or found.path.name, "output_dir": _relative(found.path, config_path)},),
        "watch": ({"pattern": found.pattern, "backlog": "newest"},),
        "benchmark": benchmarks or (EXAMPLE_BENCHMARK,),
    }
    _write(config_path, commented_toml(chosen))
    _explain(found, config_path, chosen["benchmark"])


# --- private

_RAW = {
    RawKind.TORCH: "torch.save files",
    RawKind.DCP: "torch.distributed.checkpoint shards",
    RawKind.ZERO: "DeepSpeed ZeRO shards",
}


def _benchmark(path: Path, config_path: Path) -> Values:
    """Return the settings for one data file, whose kind is detected from its rows.

    Raises:
        BadData: its rows are neither questions with answers nor with choices.
    """
    try:
        check_benchmark(Benchmark(name=path.stem, adapter="choice", data=str(path.absolute())))
        kind = "choice"
    except BadData:
        check_benchmark(Benchmark(name=path.stem, adapter="exact", data=str(path.absolute())))
        kind = "exact"
    return {"benchmark": kind, "data": _relative(path, config_path)}


def _guessed(found: FoundFolder, config_path: Path) -> tuple[Values, ...]:
    guessed = []
    for path in found.data:
        try:
            guessed.append(_benchmark(path, config_path))
        except EvaluateError:
            continue  # some other JSONL file
    return tuple(guessed)


def _relative(path: Path, config_path: Path) -> str:
    return os.path.relpath(path.absolute(), config_path.absolute().parent)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise write_error(error, f"cannot write {path}", hint="choose another file with --config") from error


def _explain(found: FoundFolder, config_path: Path, benchmarks: tuple[Values, ...]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for run in found.runs:
        console.print(f"found  {one_line(_described(run))}", markup=False)
    if not found.runs:
        console.print(f"found  no checkpoint in {found.path} yet", markup=False)
    for path in found.training_data:
        name = one_line(_relative(path, config_path))
        console.print(f"skips  {name}: name suggests training data; --data FILE uses it", markup=False)
    for benchmark in benchmarks:
        console.print(f"scores {benchmark['benchmark']} {benchmark.get('data', '')}".rstrip(), markup=False)
    console.print(f"wrote  {config_path}; next: review it, then run `tracker watch`", markup=False)


def _described(run: FoundRun) -> str:
    where = f"{run.sub_folder}: " if run.sub_folder else ""
    kind = run.problem or str(run.format)
    if run.base_model and not run.problem:
        kind += f", base {run.base_model}"
    if run.raw is not None:
        kind += f", to be converted from {_RAW[run.raw]}"
    return f"{where}{count_text(run.checkpoints, 'checkpoint')} up to step {run.newest_step} ({kind})"
