"""`tracker gate CANDIDATE --baseline REF`: may the candidate take the baseline's place?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, StoreError
from eval_jobs.types import EvalRecord
from tracker.adapters.gate_bundle import read_bundle, write_bundle
from tracker.app.comparing import whole_record_of
from tracker.app.gate import gate_of, gathered
from tracker.cli.checkpoints import is_reference, named_checkpoint
from tracker.cli.evaluating import evaluate_now
from tracker.cli.gate_markdown import gate_markdown
from tracker.cli.gate_output import DOCUMENTS, GateFormat, formats_for
from tracker.cli.gate_table import gate_table
from tracker.cli.options import config_option, open_project
from tracker.config.gating import load_gate_policy
from tracker.domain.buckets import SCHEME
from tracker.domain.gate_types import GateCase, GateReport, GateWord
from tracker.wiring import Project

EXIT_CODES = {GateWord.PASS: 0, GateWord.REGRESSION: 1}
UNSURE = 3

_FORMATS = [str(form) for form in GateFormat]
_WIDTH = 120
"""Of text in a file, in characters."""


@click.command("gate")
@click.argument("candidate", required=False)
@click.option("--baseline", help="What the candidate would replace, named like it.")
@config_option
@click.option("--policy", type=click.Path(path_type=Path, dir_okay=False), help="File with [gate]; default: --config.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="On stdout; default: by the environment.",
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write that to a file instead.")
@click.option("--bundle", type=click.Path(path_type=Path, dir_okay=False), help="Write all that the answer rests on.")
@click.option("--allow-inconclusive", is_flag=True, help="Exit code 0 for that answer too, and for no other.")
@click.option("--replay", type=click.Path(path_type=Path, dir_okay=False), help="Give the answer of a bundle again.")
def command(*, candidate: str | None, baseline: str | None, config_path: Path, **options: Any) -> int:  # noqa: ANN401
    """Say whether CANDIDATE may take the place of a baseline: PASS, REGRESSION, or that it is not known.

    Both are evaluated checkpoints (STEP, RUN@STEP, latest, best, best:BENCHMARK, models:/NAME@ALIAS), or folders or
    s3://bucket/prefix that are evaluated now. What they are held to is [gate] of the configuration, or of --policy.

    Exit code 0: pass; 1: regression; 3: inconclusive, missing or incomparable; 4: something broke.
    """
    case = _case(candidate, baseline, config_path, options)
    if options["bundle"] is not None:
        write_bundle(options["bundle"], case)
    report = gate_of(case)
    outputs = formats_for(os.environ, GateFormat(options["form"]) if options["form"] else None)
    _write(report, outputs.stdout, options["output"])
    if outputs.summary is not None:
        _append(outputs.summary, gate_markdown(report))
    if report.word is GateWord.INCONCLUSIVE and options["allow_inconclusive"]:
        return 0
    return EXIT_CODES.get(report.word, UNSURE)


# --- private


def _case(candidate: str | None, baseline: str | None, config_path: Path, options: Mapping[str, Any]) -> GateCase:
    """Return what is to be judged; what is wrong with the call is said before anything is evaluated."""
    for path in (options["output"], options["bundle"]):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"there is no folder for {path}", hint="create it, or name another file")
    if options["replay"] is not None:
        if candidate or baseline or options["policy"]:
            hint = "give --replay without CANDIDATE, --baseline and --policy"
            raise ConfigError("a bundle holds both sides and their policy", hint=hint)
        return read_bundle(options["replay"])
    if not candidate or not baseline:
        raise ConfigError("a gate needs two sides", hint="tracker gate CANDIDATE --baseline REF")
    return _gathered(open_project(config_path), candidate, baseline, options["policy"])


def _gathered(project: Project, candidate: str, baseline: str, policy: Path | None) -> GateCase:
    held_to = project.config.gate.to_policy() if policy is None else load_gate_policy(policy)
    before, after = (_record(project, name) for name in (baseline, candidate))
    return gathered(after, before, project.history, held_to)


def _record(project: Project, name: str) -> EvalRecord:
    """Return an evaluated checkpoint with its samples; a place where one lies is evaluated first."""
    if not is_reference(name) and (name.startswith(SCHEME) or Path(name).is_dir()):
        place = name if name.startswith(SCHEME) else str(Path(name).absolute())
        is_of_run = place.startswith((f"{project.config.run.output_dir}/", str(project.pins_dir.absolute())))
        run_id = None if is_of_run else f"gate/{PurePosixPath(place).name}"
        return evaluate_now(project, name, Console(stderr=True), run_id=run_id)[0][0]
    report = named_checkpoint(project, name)
    return whole_record_of(report, project.history)


def _write(report: GateReport, form: GateFormat, output: Path | None) -> None:
    if output is None and form is GateFormat.TEXT:
        Console().print(gate_table(report))
    elif output is None:
        click.echo(DOCUMENTS[form](report), nl=False)
    else:
        with _writing(output):
            output.write_text(_text(report) if form is GateFormat.TEXT else DOCUMENTS[form](report), encoding="utf-8")


def _text(report: GateReport) -> str:
    console = Console(file=StringIO(), width=_WIDTH)
    with console.capture() as captured:
        console.print(gate_table(report))
    return captured.get()


def _append(summary: Path, text: str) -> None:
    with _writing(summary), summary.open("a", encoding="utf-8") as file:
        file.write(text)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}", hint="name another file") from error
