"""`tracker report`: one self-contained HTML page about a run or a checkpoint."""

import webbrowser
from pathlib import Path

import click


@click.command("report")
@click.argument("named", metavar="[RUN | CHECKPOINT]", required=False)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("tracker.toml"),
    show_default=True,
    help="The project's configuration.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it; by default into reports/ in the state folder.",
)
@click.option("--checkpoints", is_flag=True, help="Write the page of every checkpoint too, and link them.")
@click.option("--open", "open_it", is_flag=True, help="Show it in the browser.")
def report(*, named: str | None, config_path: Path, output: Path | None, checkpoints: bool, open_it: bool) -> None:
    """Write one HTML page about a run or one of its checkpoints, to read or to send.

    A run's page shows curves, verdicts with their evidence, what was forgotten, latency and cost; a checkpoint's what
    changed since the one before and since its best, with both answers. It is one file that loads nothing. RUN is the
    project's own run unless another one is named; CHECKPOINT is STEP, RUN@STEP, latest, best, best:BENCHMARK or
    models:/NAME@ALIAS.
    """
    # Imported here: `tracker --help` lists this command and must not wait for what it needs.
    from dashboards.page.run import write_report

    path = write_report(config_path, named=named, output=output, with_checkpoints=checkpoints)
    click.echo(str(path))
    if open_it and not webbrowser.open(path.as_uri()):
        click.echo("no browser could be started; open the file yourself", err=True)
