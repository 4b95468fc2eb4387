"""`tracker gc`: delete pins and answers beyond the [keep] limits."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.text import Text

from tracker.api.opening import open_project
from tracker.app.steps.collect import StoredItem, collect
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import config_option
from tracker.cli.tables.render import plain_table
from tracker.domain.records.display import bytes_text, count_text, one_line

KINDS = {"pin": "pin", "answers": "answer set"}


@click.command("gc")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@config_option
@json_option(tuple[StoredItem, ...])
def command(*, dry_run: bool, config_path: Path, as_json: bool) -> None:
    """Delete pinned weights and answers beyond the [keep] limits. A watcher does this after each checkpoint.

    The trainer's files are never touched; scores and verdicts are never deleted.
    """
    project = open_project(config_path)
    items = collect(project.keeping(), dry_run=dry_run)
    if as_json:
        print_json(items)
        return
    console = Console()
    if items:
        console.print(items_table(items, dry_run=dry_run))
    console.print(summary(items, dry_run=dry_run))


def items_table(items: Sequence[StoredItem], *, dry_run: bool) -> RenderableType:
    """Return one row for every stored item: whether it is deleted, and why. Pure."""
    table = plain_table()
    table.add_column("run", overflow="fold")
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("space", justify="right", no_wrap=True)
    table.add_column("would be deleted" if dry_run else "deleted", no_wrap=True)
    table.add_column("reason", style="dim", overflow="fold")
    for item in items:
        checkpoint = item.choice.checkpoint
        reasons = item.choice.reasons or (() if item.is_deleted else ("in use",))
        table.add_row(
            Text(one_line(checkpoint.run_id)),
            str(checkpoint.step),
            item.kind,
            bytes_text(item.own_bytes),
            Text("yes", style="yellow") if item.is_deleted else "",
            Text(one_line("; ".join(reasons))),
        )
    return table


def summary(items: Sequence[StoredItem], *, dry_run: bool) -> str:
    """Return the result as one sentence. Pure."""
    gone = [item for item in items if item.is_deleted]
    if not items:
        return "nothing stored yet: the first checkpoint creates pins and answers"
    if not gone:
        return "nothing to delete: everything is within the \\[keep] limits or in use"
    kinds = Counter(item.kind for item in gone)
    counts = [count_text(kinds[kind], name) for kind, name in KINDS.items() if kind in kinds]
    freed = bytes_text(sum(item.own_bytes for item in gone))
    verb = "would be deleted, freeing" if dry_run else "deleted, freeing"
    return f"{' and '.join(counts)} {verb} {freed}"
