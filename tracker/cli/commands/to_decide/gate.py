"""`tracker gate CANDIDATE --baseline REF`: decide whether a candidate may replace a baseline."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError, ExitCode, TrackerError
from eval_jobs.host.storage import write_error, written
from eval_jobs.types import EvalRecord
from tracker.adapters.checkpoints.folder.runs import demand_outside_checkpoints
from tracker.adapters.gate_bundle import RecordedDecision, read_bundle, recorded_decision_of, write_bundle
from tracker.adapters.pull_requests import pull_request_of, put_comment
from tracker.api.acting import run_of_gated
from tracker.api.opening import open_project
from tracker.api.references import is_reference, named_checkpoint
from tracker.app.commands.gate import gate_of, gathered
from tracker.app.steps.comparing import whole_record_of
from tracker.cli.commands.to_decide.gate_init import write_policy
from tracker.cli.evaluating import evaluate_now
from tracker.cli.gate.markdown import escaped, gate_markdown
from tracker.cli.gate.output import DOCUMENTS, GateFormat, formats_for
from tracker.cli.gate.table import gate_table
from tracker.cli.options import FILE, asked_as, config_option
from tracker.config.gating import load_gate_policy
from tracker.domain.gate.rules import GatedChange
from tracker.domain.gate.text import name_text
from tracker.domain.gate.types import GateCase, GateReport, GateWord
from tracker.wiring.project import Project

EXIT_CODES = {GateWord.PASS: ExitCode.OK, GateWord.REGRESSION: ExitCode.REGRESSION}

_FORMATS = [str(form) for form in GateFormat]
_HINT = "choose another file"
_WIDTH = 120
"""Width of text in a file, in characters."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    candidate: str | None
    baseline: str | None
    config_path: Path
    policy: Path | None
    changed: str
    form: str | None
    output: Path | None
    bundle: Path | None
    allow_inconclusive: bool
    replay: Path | None
    comment: bool
    init: bool


@click.command("gate")
@click.argument("candidate", required=False)
@click.option("--baseline", help="Baseline checkpoint that CANDIDATE would replace.")
@config_option
@click.option("--policy", type=FILE, help="File with a [gate] table. Default: --config.")
@click.option("--init", is_flag=True, help="Write requirements that an equal candidate passes.")
@click.option("--changed", default="", help="Intended differences: prompt, engine, or prompt,engine.")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), help="Output format. Default: github in GitHub Actions, else text."
)
@click.option("--output", type=FILE, help="Write to FILE instead of stdout.")
@click.option("--bundle", type=FILE, help="Write all inputs of the result to FILE.")
@click.option("--allow-inconclusive", is_flag=True, help="Exit 0 if the result is inconclusive.")
@click.option("--replay", type=FILE, help="Recompute the result from a --bundle file.")
@click.option("--comment", is_flag=True, help="Write the result to the pull or merge request of this CI job.")
@asked_as(_Asked)
def command(asked: _Asked) -> int:
    """Decide whether CANDIDATE may replace a baseline.

    Both are evaluated checkpoints (STEP, RUN@STEP, latest, best, best:BENCHMARK, models:/NAME@ALIAS), or
    folders or s3://bucket/prefix to evaluate now.

    --init adds [gate] to the configuration, or writes a new --policy file: for each benchmark the smallest
    min_effect at which a candidate that lost nothing passes, in 80 % of cases, by the noise of the run.

    Use --changed if the candidate intentionally has another prompt or engine.

    Exit code 0: pass; 1: regression; 2: bad settings; 3: inconclusive, missing or incomparable; 4: failure.
    """
    if asked.init:
        _demand_nothing_else(asked)
        write_policy(asked.config_path, asked.policy)
        return ExitCode.OK
    report = _decide(asked)
    outputs = formats_for(os.environ, GateFormat(asked.form) if asked.form else None)
    _write(report, outputs.stdout, asked.output)
    if outputs.summary is not None:
        _append(outputs.summary, gate_markdown(report))
    if outputs.variables is not None:
        _append(outputs.variables, f"result={report.word}\n")
    if asked.comment:
        _comment(report)
    if report.word is GateWord.INCONCLUSIVE and asked.allow_inconclusive:
        return ExitCode.OK
    return EXIT_CODES.get(report.word, ExitCode.UNKNOWN)


def _demand_nothing_else(asked: _Asked) -> None:
    if any((asked.candidate, asked.baseline, asked.replay, asked.bundle, asked.output, asked.form, asked.comment)):
        hint = "run `tracker gate --init`, then `tracker gate CANDIDATE --baseline REF`"
        raise ConfigError("--init compares nothing: use only --config and --policy with it", hint=hint)


def _decide(asked: _Asked) -> GateReport:
    """Return the report, written to the bundle, with a note if it differs from the replayed one."""
    case, recorded = _case(asked)
    report = gate_of(case)
    if asked.bundle is not None:
        write_bundle(asked.bundle, case, report)
    if recorded is not None and recorded.words != recorded_decision_of(report):
        click.echo(_otherwise(recorded, report), err=True)
    return report


def _case(asked: _Asked) -> tuple[GateCase, RecordedDecision | None]:
    """Return the inputs of the gate, and a replayed decision. Arguments are checked before anything is evaluated."""
    _check_files(asked)
    changed = _changes(asked.changed)
    if asked.replay is not None:
        if any((asked.candidate, asked.baseline, asked.policy, changed)):
            hint = "remove CANDIDATE, --baseline, --policy and --changed"
            raise ConfigError("--replay cannot be combined with another candidate, baseline or policy", hint=hint)
        return read_bundle(asked.replay)
    if not asked.candidate or not asked.baseline:
        raise ConfigError("missing CANDIDATE or --baseline", hint="run `tracker gate CANDIDATE --baseline REF`")
    project = open_project(asked.config_path)
    config = project.config
    demand_outside_checkpoints((asked.output, asked.bundle), config.run.output_dir, config.watch.pattern)
    policy = project.config.gate.to_policy() if asked.policy is None else load_gate_policy(asked.policy)
    held_to = replace(policy, changed=changed)
    before = _record(project, asked.baseline, is_apart=bool(changed))
    after = _record(project, asked.candidate, is_apart=bool(changed))
    return gathered(after, before, project.history, held_to, config.to_policy().min_coverage), None


def _check_files(asked: _Asked) -> None:
    for path in (asked.output, asked.bundle):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"no such folder: {path.parent}", hint="create the folder, or choose another file")
    files = [path.resolve() for path in (asked.output, asked.bundle, asked.replay) if path is not None]
    if len(set(files)) < len(files):  # one would overwrite the other
        what = "--output, --bundle and --replay must be different files"
        raise ConfigError(what, hint="choose different file names")


def _changes(text: str) -> tuple[GatedChange, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in set(GatedChange)]
    if unknown:
        raise ConfigError(f"invalid --changed {unknown[0]!r}", hint=f"expected {' or '.join(GatedChange)}, or both")
    return tuple(map(GatedChange, names))


def _record(project: Project, name: str, *, is_apart: bool) -> EvalRecord:
    """Return the record of a checkpoint with its samples; a folder or bucket prefix is evaluated first."""
    if is_reference(name):
        return whole_record_of(named_checkpoint(project, name), project.history)
    run_id = run_of_gated(project, name, is_apart=is_apart)
    return evaluate_now(project, name, Console(stderr=True), run_id=run_id, reuse=True).results[0][0]


def _otherwise(recorded: RecordedDecision, report: GateReport) -> str:
    """Return a note that lists results that differ from those in the replayed bundle."""
    now, own = recorded_decision_of(report), version("checkpoint-tracker")
    names = [
        name for name in dict.fromkeys([*recorded.words, *now]) if name and recorded.words.get(name) != now.get(name)
    ]
    answers = [f"{name_text(name)} was {recorded.words.get(name, 'not recorded')}" for name in names]
    was = f"tracker {name_text(recorded.program)} wrote this bundle with result {recorded.words.get('', 'unknown')}"
    return f"note: {was}; tracker {own} decides {report.word} (changed: {', '.join(answers) or 'a latency limit'})"


def _write(report: GateReport, form: GateFormat, output: Path | None) -> None:
    if output is None and form is GateFormat.TEXT:
        with _no_commands(os.environ):
            Console().print(gate_table(report))
    elif output is None:
        click.echo(DOCUMENTS[form](report), nl=False)
    else:
        with written(output, hint=_HINT) as file:
            file.write((_text(report) if form is GateFormat.TEXT else DOCUMENTS[form](report)).encode())


@contextmanager
def _no_commands(environment: Mapping[str, str]) -> Iterator[None]:
    """Stop GitHub from executing workflow commands in the output: answers of models may look like one."""
    if environment.get("GITHUB_ACTIONS") != "true":
        yield
        return
    token = secrets.token_hex(16)
    click.echo(f"::stop-commands::{token}")
    try:
        yield
    finally:
        click.echo(f"::{token}::")


def _text(report: GateReport) -> str:
    page = StringIO()
    Console(file=page, width=_WIDTH).print(gate_table(report))
    return page.getvalue()


def _append(summary: Path, text: str) -> None:
    try:
        with summary.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise write_error(error, f"cannot write {summary}", hint=_HINT) from error


def _comment(report: GateReport) -> None:
    """Write the comment; a failure is printed and does not change the result."""
    try:
        page = pull_request_of(os.environ)
        if page is None:
            click.echo("no comment: this is not a CI job of a pull or merge request", err=True)
            return
        text = f"{gate_markdown(report)}\n[Job with report and bundle]({page.job_url})\n"
        put_comment(page, text, marker=f"<!-- tracker gate: {escaped(page.job)} -->")
    except TrackerError as error:
        click.echo(f"warning {error.code}: {error.message}\n  hint: {error.hint}", err=True)
