"""`tracker ui`: the MLflow pages of this project."""

from pathlib import Path

import click

from tracker.adapters.mlflow.server import serve_ui
from tracker.api.opening import open_project
from tracker.cli.options import config_option


@click.command("ui")
@config_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5000, show_default=True, help="Port; 0 selects a free one."
)
def command(*, config_path: Path, port: int) -> int:
    """Serve MLflow on this project's store, and print a link for each experiment."""
    project = open_project(config_path)
    project.make_state_dir()
    click.echo("opening MLflow (a local server starts in about 10 s) ...")
    return serve_ui(project.mlflow.uri, project.config.run.state_dir / "mlartifacts", port, click.echo)
