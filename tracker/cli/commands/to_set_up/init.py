"""`tracker init FOLDER`: write a commented tracker.toml from what is in an output folder."""

import json
import os
import shlex
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import BadData, ConfigError, EvaluateError, TrackerError
from eval_jobs.evaluate.data.files import benchmark_of_folder, check_benchmark, read_items
from eval_jobs.evaluate.data.held_out import read_held_out
from eval_jobs.evaluate.data.prompt_lengths import read_prompt_lengths
from eval_jobs.host.storage import written
from eval_jobs.records.preflight import EngineEnvironment, ModelFacts
from eval_jobs.serve.preflight import local_model, read_environment, read_model
from eval_jobs.types import Benchmark, ServeSpec
from tracker.adapters.checkpoints.folder.runs import (
    FoundFolder,
    FoundRun,
    demand_output_folder,
    demand_outside_checkpoints,
    find_runs,
)
from tracker.cli.options import config_option
from tracker.cli.settings_text import Values, commented_toml
from tracker.config import DEFAULT_NAME
from tracker.domain.checkpoints.listing import RawKind, is_training_data
from tracker.domain.checkpoints.raw.state import CONFIG_HINT
from tracker.domain.readiness.proposal import longest_tokens, run_name, serve_values, suite_values
from tracker.domain.readiness.surroundings import empty_finding
from tracker.domain.records.display import count_text, one_line

HUB_BENCHMARK = {"benchmark": "gsm8k", "limit": 100}
"""Offered without any data: small, well known, downloaded by EvalScope."""
HELD_OUT = "held-out.jsonl"


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@config_option
@click.option("--data", multiple=True, type=click.Path(path_type=Path), help="JSONL file or data folder; repeatable.")
@click.option("--name", help="Name of the run. Default: the folder's, or its parent's if generic.")
@click.option("--force", is_flag=True, help="Overwrite an existing configuration.")
@click.option("--yes", is_flag=True, help="Accept questions of training data or a download, or a FOLDER above a run.")
def command(
    *, folder: Path, config_path: Path, data: tuple[Path, ...], name: str | None, force: bool, yes: bool
) -> None:
    """Create a commented tracker.toml for FOLDER, the output folder of the trainer.

    JSONL files in FOLDER, next to it or in the current folder become benchmarks if each row has a question and an
    answer.
    """
    if config_path.exists() and not force:
        raise ConfigError(f"{config_path} already exists", hint="use --force to overwrite it, or --config FILE")
    demand_outside_checkpoints([config_path], folder)
    found = find_runs(folder, config_path.absolute().parent)
    if not (found.runs or yes):
        demand_output_folder(found.path)
    refused: list[str] = []
    given = [one for path in data for one in _given(path, refused)] or _guessed(found.data, refused)
    benchmarks = _named_apart(given, config_path) or (_offered(found, config_path, refused, is_accepted=yes),)
    model, engine = _model(found), _engine()
    base = _base(found)
    sized = read_model(base, weights_bytes=0) if base else model
    longest = _longest(benchmarks, sized, config_path)
    chosen: dict[str, Values] = {
        "run": {"name": name or run_name(found.path), "output_dir": _relative(found.path, config_path)},
        "watch": {"backlog": "newest", **_config_from(base, config_path)},
        "serve": serve_values(model, engine, longest),
        "suite": suite_values(sized, longest),
        "tracking": _tracking(found.path),
    }
    tables = {table: (values,) for table, values in chosen.items() if values}
    _write(config_path, commented_toml({**tables, "benchmark": benchmarks}))
    _explain(found, config_path, benchmarks, refused)


_DATA_HINT = "name a folder like its benchmark, such as gsm8k, or write JSONL files with questions and answers"
_BESIDE = "not named like the checkpoints; evaluate it with `tracker evaluate FOLDER`"
_RAW = {
    RawKind.TORCH: "torch.save files",
    RawKind.DCP: "torch.distributed.checkpoint shards",
    RawKind.ZERO: "DeepSpeed ZeRO shards",
}


def _given(path: Path, refused: list[str]) -> list[Benchmark]:
    """Return the benchmark of a file or folder, or those of the files and folders in a folder."""
    known = benchmark_of_folder(path) if path.is_dir() else _benchmark(path)
    if known is not None:
        return [known]
    parts = [*path.glob("[!.]*/"), *(file for file in path.glob("[!.]*.jsonl") if not is_training_data(file.name))]
    found = _guessed(sorted(parts), refused)
    if not found:
        raise BadData("; ".join((f"no benchmark in {path}", *refused[-3:])), hint=_DATA_HINT)
    return found


def _benchmark(path: Path) -> Benchmark:
    """Return the benchmark of one data file, whose kind is detected from its rows, or of one benchmark's folder."""
    if path.is_dir():
        if known := benchmark_of_folder(path):
            return known
        raise BadData(f"{path}: not named like a known benchmark", hint=_DATA_HINT)
    found = Benchmark(name=path.stem, adapter="choice", data=str(path.absolute()))
    try:
        read_items(found)
    except BadData:
        found = replace(found, adapter="exact")
    check_benchmark(found)
    return found


def _guessed(paths: Iterable[Path], refused: list[str]) -> list[Benchmark]:
    """Return the benchmarks of those paths that are some; `refused` gets the reason of each other one."""
    guessed = []
    for path in paths:
        try:
            guessed.append(_benchmark(path))
        except EvaluateError as error:  # some other JSONL file
            refused.append(error.message)
    return guessed


def _named_apart(benchmarks: Iterable[Benchmark], config_path: Path) -> tuple[Values, ...]:
    """Return the benchmarks' settings; one that is called like an earlier one gets a name of its own."""
    named: dict[str, Values] = {}
    for one in benchmarks:
        path, name = Path(str(one.data)), one.name
        if name in named:
            name = f"{path.resolve().parent.name}-{name}"
        while name in named:
            name += "-2"
        examples = {} if one.few_shot is None else {"few_shot": one.few_shot}
        values = {"benchmark": one.adapter, "data": _relative(path, config_path), **examples}
        named[name] = values if name == one.name else {**values, "name": name}
    return tuple(named.values())


def _offered(found: FoundFolder, config_path: Path, refused: list[str], *, is_accepted: bool) -> Values:
    """Return a benchmark for a project without questions, if the user accepts it."""
    held_out = {path: rows for path in found.training_data if (rows := read_held_out(path))}
    offer = f"{HUB_BENCHMARK['benchmark']}, {HUB_BENCHMARK['limit']} questions that EvalScope downloads"
    if held_out:
        source, rows = next(iter(held_out.items()))
        offer = f"{HELD_OUT}, {count_text(len(rows), 'row')} of {_relative(source, config_path)}"
    if not is_accepted and not (sys.stdin.isatty() and click.confirm(f"No questions found. Use {offer}?")):
        raise ConfigError(
            "; ".join((f"no questions found in {found.path} or next to it", *refused[:3])),
            hint=f"pass --data FILE with one question and answer per row, or --yes to use {offer}",
        )
    if not held_out:
        return HUB_BENCHMARK
    path = config_path.absolute().parent / HELD_OUT
    _write(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return {"benchmark": "exact", "data": HELD_OUT}


def _model(found: FoundFolder) -> ModelFacts | None:
    """Return the facts about the newest complete checkpoint, with its base model."""
    usable = [run.complete for run in found.runs if run.complete is not None]
    if not usable or usable[-1].complete is None:
        return None
    base = usable[-1].complete.base_model
    return read_model(usable[-1].path, weights_bytes=usable[-1].weights_bytes, base=local_model(base) if base else None)


def _config_from(base: Path | None, config_path: Path) -> Values:
    if base is None:
        return {}
    return {"config_from": _relative(base, config_path)}


def _base(found: FoundFolder) -> Path | None:
    """Return the only model next to a run without complete checkpoints, which may need its configuration."""
    if len(found.models) == 1 and not any(run.complete for run in found.runs):
        return found.models[0]
    return None


def _engine() -> EngineEnvironment | None:
    try:
        return read_environment(ServeSpec())
    except TrackerError:  # `tracker doctor` reports it
        return None


def _longest(benchmarks: tuple[Values, ...], model: ModelFacts | None, config_path: Path) -> int:
    """Return the tokens of the longest question, 0 if unknown."""
    if model is None or not model.tokenizer:
        return 0
    lengths = []
    for values in benchmarks:
        data = str(config_path.absolute().parent / str(values.get("data")))
        benchmark = Benchmark(name="", adapter=str(values["benchmark"]), data=data)
        lengths.append(read_prompt_lengths(benchmark, Path(model.tokenizer)))
    return longest_tokens(lengths)


def _tracking(folder: Path) -> Values:
    """Return where the trainer writes its MLflow runs, so that scores join its curves."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if uri and "@" not in uri:
        return {"uri": uri}
    stores = [place / "mlflow.db" for place in (Path.cwd(), folder, folder.parent)]
    for store in stores:
        if store.is_file():
            return {"uri": f"sqlite:///{store.absolute()}"}
    return {}


def _relative(path: Path, config_path: Path) -> str:
    return os.path.relpath(path.absolute(), config_path.absolute().parent)


def _write(path: Path, text: str) -> None:
    with written(path, hint="choose another file with --config") as file:
        file.write(text.encode())


def _explain(found: FoundFolder, config_path: Path, benchmarks: tuple[Values, ...], refused: list[str]) -> None:
    lines = _seen(found, config_path)
    refused += [f"{_relative(path, config_path)}: {_BESIDE}" for path in found.beside]
    used = {benchmark.get("data") for benchmark in benchmarks}
    training = {_relative(path, config_path) for path in found.training_data}
    refused += [f"{name}: name suggests training data; --data FILE uses it" for name in sorted(training - used)]
    lines += [f"skips  {one_line(reason)}" for reason in refused]
    lines += [f"scores {values['benchmark']} {values.get('data', '(downloaded)')}" for values in benchmarks]
    if HELD_OUT in used:
        lines.append(f"       remove the rows of {HELD_OUT} from the training data; scores are too high otherwise")
    option = "" if str(config_path) == DEFAULT_NAME else f" --config {shlex.quote(str(config_path))}"
    lines += [f"wrote  {config_path}", f"next   tracker doctor{option}", f"       tracker watch{option}"]
    Console(highlight=False, soft_wrap=True).print("\n".join(lines), markup=False)


def _seen(found: FoundFolder, config_path: Path) -> list[str]:
    base = _base(found)
    lines = []
    for run in found.runs:
        lines.append(f"found  {one_line(_described(run))}")
        if run.problem is not None and not (base and run.problem.hint == CONFIG_HINT):
            lines.append(f"       hint: {one_line(run.problem.hint)}")
    if not found.runs:
        lines += _reason(found)
    if base:
        lines.append(f"model  {_relative(base, config_path)}, for the configuration of checkpoints without one")
    return lines


def _reason(found: FoundFolder) -> tuple[str, str]:
    is_folder = None
    if found.path.exists():
        is_folder = {entry.name: entry.is_dir() for entry in found.path.glob("[!.]*")}
    finding = empty_finding(str(found.path), "", is_folder)
    return f"found  {finding.message}", f"       hint: {finding.hint}"


def _described(run: FoundRun) -> str:
    where = f"{run.sub_folder}: " if run.sub_folder else ""
    known = run.complete.complete if run.complete is not None else None
    kind = run.problem.reason if run.problem is not None else ""
    if known is not None and not kind:
        kind = str(known.format) + (f", base {known.base_model}" if known.base_model else "")
        if known.raw is not None:
            kind += f", to be converted from {_RAW[known.raw]}"
    return f"{where}{count_text(run.checkpoints, 'checkpoint')} up to {run.newest} ({kind})"
