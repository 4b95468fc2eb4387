"""`tracker silence SUBJECT --for 4h`: nobody is told of something for a while."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import click

from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from eval_jobs.identity import content_hash
from eval_jobs.records.run_scope import is_of
from tracker.api.opening import open_project
from tracker.cli.options import asked_as, config_option, json_option, json_text
from tracker.domain.records.alerts import Silence, SubjectKind
from tracker.domain.records.display import one_line
from tracker.domain.records.subjects import silenced_text
from tracker.wiring.project import Project

UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
LONGEST = timedelta(days=365)
KINDS = (SubjectKind.BENCHMARK, SubjectKind.LATENCY, SubjectKind.CHECKPOINT, SubjectKind.QUEUE)


def length_of(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Return the length of time that a person wrote, such as `30min`, `4h` or `2d`."""
    del ctx
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,6})\s*(s|min|h|d)", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no length of time: write 30min, 4h or 2d", param=param)
    length = timedelta(seconds=int(match[1]) * UNITS_S[match[2]])
    if not timedelta() < length <= LONGEST:
        raise click.BadParameter("silence something for 1s to 365d", param=param)
    return length


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was asked for on the command line."""

    name: str | None
    kind: str | None
    subset: str | None
    length: timedelta | None
    reason: str | None
    end: bool
    run_id: str | None
    config_path: Path
    as_json: bool


@click.command("silence")
@click.argument("name", required=False)
@click.option("--kind", type=click.Choice([str(kind) for kind in KINDS]), help="What NAME is; default: a benchmark.")
@click.option("--subset", help="Only this subset of the benchmark, or a pattern; default: the whole and all of them.")
@click.option("--for", "length", callback=length_of, help="How long: 30min, 4h or 2d.")
@click.option("--reason", help="Why; shown by `tracker alerts list`.")
@click.option("--end", is_flag=True, help="End this silence now.")
@click.option("--run", "run_id", help="Only a sub-folder's run; default: the project's run with all of them.")
@config_option
@json_option
@asked_as(_Asked)
def command(asked: _Asked) -> None:
    """Tell nobody of a benchmark with its subsets for a while, or of several by a pattern such as math*.

    `--kind latency` means slower answers, under the load NAME or any; `--kind checkpoint` and `--kind queue` what is
    told of missing checkpoints and of evaluations that do not go on.
    Nothing is forgotten: what still lasts when the silence ends is told then. `tracker accept` ends a loss for good.
    """
    project = open_project(asked.config_path)
    own, now = project.config.run.name, SystemClock().now()
    run_id = asked.run_id or own
    if not is_of(run_id, own):
        raise ConfigError(f"{run_id} is not of the run of this tracker.toml, {own}", hint=f"write {own}/NAME")
    alerting = project.alerting
    silence = _asked_for(asked, run_id, now)
    if asked.end:
        _check_silenced(silence, alerting.silences())
    alerting.silence(silence)
    alerting.close()  # what is told now that a silence has ended
    if asked.as_json:
        click.echo(json_text(Silence, silence))
    elif asked.end:
        click.echo(f"no longer silenced: {_what(silence)}")
    else:
        until = f"{silence.ends_at:%Y-%m-%d %H:%M} UTC"
        click.echo(f"silenced until {until}: {_what(silence)}")
        _say_what_is_unknown(project, silence)


# --- private


def _what(silence: Silence) -> str:
    return f"{one_line(silenced_text(silence))} of {one_line(silence.run_id)}"


def _check_silenced(silence: Silence, silences: Sequence[Silence]) -> None:
    if silence.id not in [known.id for known in silences]:
        known = ", ".join(map(_what, silences)) or "nothing"
        raise ConfigError(f"{_what(silence)} is not silenced", hint=f"silenced: {known}")


def _say_what_is_unknown(project: Project, silence: Silence) -> None:
    """A name that is wrong would hold nothing back, and nobody would notice until the night."""
    known = [benchmark.resolved_name() for benchmark in project.config.benchmark]
    if silence.kind is not SubjectKind.BENCHMARK:
        return
    for name in known:
        if name == silence.name or fnmatchcase(name, silence.name):
            return
    click.echo(f"so far no benchmark is called like that; what is known: {one_line(', '.join(known))}")


def _asked_for(asked: _Asked, run_id: str, now: datetime) -> Silence:
    reason = (asked.reason or "").strip()
    if asked.end == (asked.length is not None):
        raise ConfigError("for how long?", hint="give --for 4h to begin a silence, or --end to end it")
    if not (reason or asked.end):
        raise ConfigError("a silence needs a reason", hint="--reason says it to those who wonder why nobody was told")
    kind, name, subset = _kind_of(asked), asked.name or "*", asked.subset or "*"
    return Silence(
        id=content_hash([run_id, kind, name, subset]),
        run_id=run_id,
        kind=kind,
        name=name,
        subset=subset,
        reason=reason,
        begins_at=now,
        ends_at=now + (asked.length or timedelta()),
    )


def _kind_of(asked: _Asked) -> SubjectKind:
    """Return what is to be silenced; a word that means a kind and may be a benchmark's name is asked back."""
    if asked.kind is None and asked.name in KINDS:
        raise ConfigError(
            f"{asked.name} may be a kind of alert or a benchmark",
            hint=f"write --kind {asked.name}, or --kind benchmark {asked.name} for a benchmark of that name",
        )
    if asked.kind in (None, SubjectKind.BENCHMARK):
        if not asked.name:
            raise ConfigError("silence what?", hint="name a benchmark, or a kind of alert by --kind")
        return SubjectKind.BENCHMARK
    kind = SubjectKind(asked.kind)
    if asked.name and kind is not SubjectKind.LATENCY:
        raise ConfigError(f"alerts of the kind {kind} have no name", hint=f"leave out {asked.name!r}")
    if asked.subset is not None:
        raise ConfigError("only benchmarks have subsets", hint="leave out --subset")
    return kind
