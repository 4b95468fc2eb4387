"""`tracker report`: one self-contained HTML page about a run, several runs or a checkpoint."""

import webbrowser
from pathlib import Path

import click


@click.command("report")
@click.argument("named", metavar="[RUN... | CHECKPOINT]", nargs=-1)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("tracker.toml"),
    show_default=True,
    help="Project configuration.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file. Default: a file in the state folder's reports/.",
)
@click.option("--checkpoints", is_flag=True, help="Also write and link a report of every checkpoint.")
@click.option("--open", "open_it", is_flag=True, help="Open the report in the browser.")
def report(*, named: tuple[str, ...], config_path: Path, output: Path | None, checkpoints: bool, open_it: bool) -> None:
    """Write a self-contained HTML report of a run, of several runs or of a checkpoint.

    A run: curves, verdicts with their evidence, forgetting, latency and cost. Several runs: comparison with the
    first one, step by step. A checkpoint: what changed since the previous and the best checkpoint, with both
    answers. RUN defaults to run.name; CHECKPOINT is STEP, RUN@STEP, latest, best, best:BENCHMARK or
    models:/NAME@ALIAS.
    """
    # Imported here so that `tracker --help`, which lists this command, does not wait for it.
    from dashboards.page.run import write_report, write_runs_report

    if len(named) > 1 and not checkpoints:
        path = write_runs_report(config_path, named, output)
    elif len(named) > 1:
        raise click.UsageError("--checkpoints takes one run")
    else:
        path = write_report(config_path, named=next(iter(named), None), output=output, with_checkpoints=checkpoints)
    click.echo(str(path), err=path.is_relative_to("/dev"))  # /dev/stdout gets the page and nothing else
    if open_it and not webbrowser.open(path.as_uri()):
        click.echo("cannot start a browser; open the file manually", err=True)
