"""`tracker worker`: claim plans from a database and evaluate them here."""

import logging
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from eval_jobs.errors import ConfigError
from eval_jobs.execute.child import database_from_environment
from eval_jobs.execute.worker.claiming import PinVisibility
from eval_jobs.execute.worker.main import WorkerOptions, run_worker
from eval_jobs.queue.address import PASSWORD_VARIABLE, QUEUE_URL_VARIABLE, checked_database_url
from tracker.adapters.secrets import read_secret
from tracker.api.opening import open_project
from tracker.config import DEFAULT_NAME
from tracker.domain.records.display import one_line

PATH = click.Path(path_type=Path)


@click.command("worker")
@click.option("--config", "config_path", type=PATH, help=f"Configuration of the watcher. Default: {DEFAULT_NAME}.")
@click.option("--database", default="", help=f"Database URL, instead of --config (or ${QUEUE_URL_VARIABLE}).")
@click.option("--password-file", type=PATH, help=f"File with the password (or set it in ${PASSWORD_VARIABLE}).")
@click.option("--work-dir", type=PATH, help="Work folder for logs and partial results; required with --database.")
def command(*, config_path: Path | None, database: str, password_file: Path | None, work_dir: Path | None) -> None:
    """Evaluate checkpoints for a watcher, on this or another machine.

    Claims evaluation plans from the watcher's database, one at a time, on any machine that can read the
    pinned checkpoints under the same path. Ctrl-C releases the current plan.
    """
    url, password = database_from_environment()
    if database and config_path is not None:
        raise ConfigError("--config and --database are mutually exclusive", hint="remove one of them")
    database = database or url
    if config_path is None and database:
        password = read_secret(variable="", file=password_file, setting="--password") or password
        url = checked_database_url(database)
    else:
        url, password, work_dir = _place_of(config_path or Path(DEFAULT_NAME), work_dir)
    _work(url, password, work_dir)


def _place_of(config_path: Path, work_dir: Path | None) -> tuple[str, str, Path]:
    project = open_project(config_path)
    project.make_state_dir()
    config = project.config
    return config.database_url, project.database_password, work_dir or config.run.work_dir


def _work(url: str, password: str, work_dir: Path | None) -> None:
    if work_dir is None:
        raise ConfigError("missing --work-dir", hint="pass a folder on a local disk for logs and partial results")
    console = Console()
    status = console.status("starting")
    events = logging.getLogger("eval_jobs.execute")
    events.setLevel(logging.INFO)
    events.addHandler(_Events(console))
    if console.is_terminal:
        status.start()
    try:
        run_worker(
            WorkerOptions(
                queue_url=url,
                password=password,
                work_dir=work_dir.absolute(),
                visibility=PinVisibility(),
                show=lambda line: status.update(Text(one_line(line))),
            )
        )
    finally:
        status.stop()


class _Events(logging.Handler):
    """Prints events of the worker above the live line; they are also written to its log."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        self._console.print(Text(one_line(record.getMessage()), style), soft_wrap=True)
