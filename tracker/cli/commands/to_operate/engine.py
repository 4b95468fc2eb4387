"""`tracker engine status`: running engines and certified weight swaps."""

from itertools import zip_longest
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from eval_jobs.serve.status import EngineStatus, KeptEngine, KeptProof, engine_status
from tracker.api.opening import open_project
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.domain.records.display import one_line

NOTHING_RUNS = "no engine running; one starts with the next checkpoint"
NOTHING_PROVED = "no certified weight swaps yet; one is certified at the second checkpoint of a run"
STATE_CHARS = len("leftover")


@click.group("engine")
def command() -> None:
    """Show running engines and certified weight swaps."""


@command.command("status")
@click.option("--work-dir", type=click.Path(path_type=Path), help="Work folder of a worker started with --work-dir.")
@config_option
@json_option(EngineStatus)
def status(*, work_dir: Path | None, config_path: Path, as_json: bool) -> None:
    """Show running engines and certified weight swaps.

    A kind of swap is certified when its outputs on fixed prompts are bit-identical to those after a cold start.
    A kind that differed is listed as refused: the engine restarts instead, until you delete the listed file.
    """
    found = engine_status(work_dir if work_dir is not None else open_project(config_path).config.run.work_dir)
    if as_json:
        print_json(found)
        return
    console = Console()
    for block in [*map(engine_block, found.engines)] or [Text(NOTHING_RUNS)]:
        console.print(block)
    for block in [*map(proof_block, found.proofs)] or [Text(NOTHING_PROVED)]:
        console.print(block)


def engine_block(engine: KeptEngine) -> RenderableType:
    """Return the checkpoints, load method and process of one engine. Pure."""
    return _block(
        engine.service,
        "bold",
        ", ".join(reversed(engine.checkpoints)),
        _sentence(f"load method {engine.load_method}", engine.certificate, engine.engine),
        f"{engine.name}, port {engine.port or '-'}, worker {engine.worker_pid}",
    )


def proof_block(kept: KeptProof) -> RenderableType:
    """Return one certificate or refusal, with its conditions and how to retry. Pure."""
    proof, kind = kept.proof, kept.proof.kind
    computed = "" if kind.dtype == "auto" else f"in {kind.dtype}"
    asleep = f"after sleep level {kind.asleep}" if kind.asleep else ""
    return _block(
        "certified" if proof.is_certificate else "refused",
        "green" if proof.is_certificate else "yellow",
        _sentence(f"{kind.way} of {kind.architecture}", kind.weights, kind.quantisation, computed),
        _sentence(kind.engine, f"on {kind.device}", *kind.flags, asleep),
        f"{proof.date:%Y-%m-%d %H:%M} {proof.checkpoint}, compared in {proof.took_s:.1f} s",
        f"id {kind.id}",
        *([] if proof.is_certificate else [proof.differed, f"to retry: rm {kept.file}"]),
    )


def _sentence(*words: str) -> str:
    return " ".join(filter(None, words))


def _block(state: str, style: str, *lines: str) -> RenderableType:
    """Return a state on the left and lines on the right, wrapped at the terminal's width."""
    states = Column(no_wrap=True, min_width=STATE_CHARS)
    table = Table.grid(states, Column(overflow="fold"), padding=(0, 2))
    for word, line in zip_longest([state], filter(None, lines), fillvalue=""):
        table.add_row(Text(word, style=style), Text(one_line(line)))
    return table
