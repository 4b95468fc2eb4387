"""`tracker doctor`: check what evaluations and a training need on this machine, before they start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from eval_jobs.errors import ConfigError
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import asked_as, config_option
from tracker.cli.tables.findings import conclusion, findings_table
from tracker.config import Config, load_config
from tracker.domain.readiness.finding import Finding, FindingSide, exit_code
from tracker.domain.readiness.training.memory import Offload, Zero
from tracker.domain.records.display import clean_lines


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What is examined."""

    checkpoint: str | None
    config_path: Path
    as_json: bool
    side: str | None
    model: Path | None
    gpus: int | None
    zero: str | None
    offload: str | None
    workers: int | None
    show_prompt: str | None

    def check(self) -> None:
        """Raise ConfigError if something is asked for of the side that is not checked."""
        if self.show_prompt is not None and (self.as_json or self.side is not None):
            raise ConfigError("--show-prompt takes no --json and no --for", hint="omit them")
        if self.side == FindingSide.TRAINING and self.checkpoint is not None:
            raise ConfigError("--for training checks no CHECKPOINT", hint="name the model of a training with --model")
        of_training = (self.model, self.gpus, self.zero, self.offload, self.workers)
        if self.side == FindingSide.EVALUATION and of_training != (None,) * len(of_training):
            what = "--for evaluation ignores --model, --gpus, --zero, --offload and --workers"
            raise ConfigError(what, hint="omit --for, or those options")

    def stage(self) -> Zero | None:
        """Return the ZeRO stage that is asked for."""
        return None if self.zero is None else Zero(int(self.zero))

    def kept(self) -> Offload | None:
        """Return what is offloaded: nothing if only a stage is asked for; None: all that exists is asked for."""
        if self.offload is not None:
            return Offload(self.offload)
        return None if self.zero is None else Offload.NONE


@click.command("doctor")
@click.argument("checkpoint", required=False)
@config_option
@click.option("--for", "side", type=click.Choice([str(side) for side in FindingSide]), help="Check only one.")
@click.option("--model", type=click.Path(path_type=Path), help="Model folder: estimate memory.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="COUNT", help="GPUs used. Default: all visible.")
@click.option("--zero", type=click.Choice([str(one.value) for one in Zero]), help="Only this ZeRO stage.")
@click.option("--offload", type=click.Choice([str(one) for one in Offload]), help="What host memory holds.")
@click.option("--workers", type=click.IntRange(min=0), metavar="COUNT", help="Data loader workers per rank.")
@click.option("--show-prompt", metavar="BENCHMARK", help="Only print its first prompt, as sent.")
@json_option(tuple[Finding, ...])
@asked_as(Examination)
def command(asked: Examination) -> int:
    """Check what would stop evaluations or a training on this machine.

    Evaluations, with a tracker.toml: settings, engine, model (CHECKPOINT, by default the newest), benchmarks, stores.
    Training: limits, memory, disk, network, GPUs. Exit code 2: evaluations would fail; 1: the training would stop; 3:
    it may be slow or fail.
    """
    asked.check()
    if asked.show_prompt is not None:
        _show_prompt(load_config(asked.config_path), asked.show_prompt)
        return 0
    config = _config(asked)
    findings = () if config is None or asked.side == FindingSide.TRAINING else _of_evaluation(config, asked.checkpoint)
    if asked.side != FindingSide.EVALUATION:
        from tracker.wiring.training import PlannedTraining, examine_training

        plan = PlannedTraining(
            model=asked.model, gpus=asked.gpus, zero=asked.stage(), offload=asked.kept(), workers=asked.workers
        )
        findings += examine_training(plan, config)
    if asked.as_json:
        print_json(findings)
    else:
        _print(findings)
    return exit_code(findings)


def _show_prompt(config: Config, name: str) -> None:
    from eval_jobs.evaluate.common.protocol import RetryPolicy
    from eval_jobs.evaluate.evalscope.evaluator import EvalScopeEvaluator
    from tracker.wiring.project import Project

    suite = Project(config).suite()
    chosen = tuple(one for one in suite.benchmarks if one.name == name and one.program is None)
    if not chosen:
        raise ConfigError(f"cannot show a prompt of {name!r}", hint="choose a benchmark that EvalScope evaluates")
    with closing(EvalScopeEvaluator(config.run.work_dir, retry_policy=RetryPolicy(broken_s=()))) as evaluator:
        found = evaluator.first_question(replace(suite, benchmarks=chosen))
    target = found.target if isinstance(found.target, str) else " | ".join(found.target)
    for what, text in (*found.messages, ("target", target)):
        click.echo("\n".join((f"--- {what}", *clean_lines(text))))


def _config(asked: Examination) -> Config | None:
    """Return the settings; None: there are none, and they are not required."""
    is_default = click.get_current_context().get_parameter_source("config_path") is ParameterSource.DEFAULT
    if is_default and asked.side != FindingSide.EVALUATION and not asked.checkpoint and not asked.config_path.exists():
        return None
    return load_config(asked.config_path)


def _of_evaluation(config: Config, checkpoint: str | None) -> tuple[Finding, ...]:
    from tracker.wiring.doctor import examine  # here: imports what reads data and stores
    from tracker.wiring.project import Project

    return examine(Project(config), checkpoint)


def _print(findings: tuple[Finding, ...]) -> None:
    console = Console(highlight=False)
    for side in FindingSide:
        if ours := [one for one in findings if one.side is side]:
            console.print(findings_table(ours), conclusion(ours), sep="\n")
