"""`tracker gate --init`: write a policy that candidates can pass from what the run has shown."""

from pathlib import Path

import click
from rich.console import Console

from eval_jobs.errors import ConfigError
from eval_jobs.host.storage import written
from tracker.adapters.checkpoints.folder.runs import demand_outside_checkpoints
from tracker.api.opening import open_project
from tracker.api.references import choose_run
from tracker.app.commands.gate import proposed
from tracker.cli.gate.proposal import proposal_table, proposal_toml
from tracker.config import parse_config
from tracker.config.reading import text_without
from tracker.domain.gate.rules import BenchmarkRule, GatePolicy


def write_policy(config_path: Path, policy_path: Path | None) -> None:
    """Append [gate] to the project's configuration, or write it to `policy_path`. An existing policy is kept.

    Raises:
        ConfigError: there is a policy already, or the run has too few results for one.
    """
    project = open_project(config_path)
    config = project.config
    target = config_path if policy_path is None else policy_path
    before = ""
    if policy_path is None:
        hint = "remove [gate] to write it again, or write another file: `tracker gate --init --policy gate.toml`"
        before = text_without("gate", config_path, hint=hint)
    elif policy_path.exists():
        raise ConfigError(f"{policy_path} already exists", hint="delete it, or pass another file to --policy")
    demand_outside_checkpoints([target], config.run.output_dir, config.watch.pattern)
    run_id = choose_run(project.history.runs(), None, own=config.run.name)
    names = [benchmark.resolved_name() for benchmark in config.benchmark]
    rule = BenchmarkRule(min_coverage=config.gate.min_coverage or BenchmarkRule.min_coverage)
    found = proposed(run_id, names, project.history, GatePolicy(alpha=config.gate.alpha, otherwise=rule))
    text = proposal_toml(found)
    if policy_path is None:
        text = f"{before.rstrip()}\n\n{text}"
        parse_config(text, config_path)  # never leave a file that cannot be read
    with written(target, hint="pass another file to --policy") as file:
        file.write(text.encode())
    console = Console()
    console.print(proposal_table(found))
    given = "" if policy_path is None else f" --policy {policy_path}"
    click.echo(f"\nwrote [gate] to {target}")
    click.echo(f"next: tracker gate CANDIDATE --baseline REF{given}")
