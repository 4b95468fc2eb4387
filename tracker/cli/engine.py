"""`tracker engine status`: what engines hold now, and which ways of loading weights are certified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from eval_jobs.serve.status import EngineStatus, KeptProof, ResidentEngine, engine_status
from tracker.cli.options import config_option, json_option, json_text, open_project
from tracker.domain.display import one_line

NOTHING_RUNS = "no engine runs here: the next checkpoint starts one"
NOTHING_PROVED = "nothing is certified yet: the second checkpoint of a run does that"


@click.group("engine")
def command() -> None:
    """Look at the engines that serve checkpoints."""


@command.command("status")
@click.option("--work-dir", type=click.Path(path_type=Path), help="Of `tracker worker`, where it has one of its own.")
@config_option
@json_option
def status(*, work_dir: Path | None, config_path: Path, as_json: bool) -> None:
    """Show what engines hold now, and which ways of loading weights are certified.

    A way is certified when a checkpoint that was put into a running engine answered fixed prompts as after a cold
    start, bit by bit. Refused ones are started cold, until somebody deletes the file that is named.
    """
    found = engine_status(work_dir if work_dir is not None else open_project(config_path).work_dir)
    if as_json:
        click.echo(json_text(EngineStatus, found))
        return
    console = Console()
    console.print(engines_table(found.engines) if found.engines else NOTHING_RUNS)
    console.print(proofs_table(found.proofs) if found.proofs else NOTHING_PROVED)
    for kept in found.proofs:
        if not kept.proof.is_certificate:
            click.echo(f"to have {kept.proof.kind.id} tried again: rm {one_line(kept.file)}")


def engines_table(engines: Sequence[ResidentEngine]) -> RenderableType:
    """Return one row for each engine that runs. Pure."""
    table = _table("engine", "holds", "does", "loaded by", "version", "port", "worker")
    for engine in engines:
        table.add_row(
            engine.name,
            Text(one_line(", ".join(reversed(engine.checkpoints)))),
            engine.service,
            f"{engine.load_method} {engine.certificate}".strip(),
            one_line(engine.engine),
            str(engine.port or ""),
            str(engine.worker_pid),
        )
    return table


def proofs_table(proofs: Sequence[KeptProof]) -> RenderableType:
    """Return one row for each certificate and refusal, with what it was about. Pure."""
    table = _table("id", "way", "result", "model", "on", "tried")
    for kept in proofs:
        proof, kind = kept.proof, kept.proof.kind
        what = "certified" if proof.is_certificate else f"refused: {proof.differed}"
        model = [kind.architecture, kind.weights, kind.quantisation, "" if kind.dtype == "auto" else kind.dtype]
        on = [kind.engine, "on", kind.device, *kind.flags, f"after sleep {kind.asleep}" if kind.asleep else ""]
        table.add_row(
            kind.id,
            kind.way,
            Text(one_line(what), style="green" if proof.is_certificate else "yellow"),
            Text(one_line(" ".join(filter(None, model)))),
            Text(one_line(" ".join(filter(None, on)))),
            Text(one_line(f"{proof.date:%Y-%m-%d %H:%M} with {proof.checkpoint}, {proof.took_s:.1f} s")),
        )
    return table


# --- private


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table
