"""`tracker silence NAME --for 4h`: silence alerts for a while."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import filter as filter_names
from pathlib import Path

import click

from eval_jobs.errors import ConfigError
from eval_jobs.host.clock import SystemClock
from eval_jobs.identity import content_hash
from eval_jobs.records.run_scope import is_of
from tracker.api.opening import open_project
from tracker.api.steps import known_names_hint
from tracker.cli.json_output import json_option, print_json
from tracker.cli.options import asked_as, config_option
from tracker.domain.log.events import EventKind, run_event
from tracker.domain.records.alerts import Silence, SubjectKind, silenced_text
from tracker.wiring.project import Project

UNITS_S = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
LONGEST = timedelta(days=365)
KINDS = (
    *(SubjectKind.BENCHMARK, SubjectKind.LATENCY, SubjectKind.CHECKPOINT, SubjectKind.QUEUE, SubjectKind.TRACKING),
    SubjectKind.TRAINING,
)
_NAMED = (SubjectKind.LATENCY, SubjectKind.TRAINING)
_WHAT = {SubjectKind.BENCHMARK: "benchmark", SubjectKind.LATENCY: "load"}


def length_of(ctx: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Return the duration given as text, such as `30min`, `4h` or `2d`."""
    del ctx
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,6})\s*(s|min|h|d)", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a duration, such as 30min, 4h or 2d", param=param)
    length = timedelta(seconds=int(match[1]) * UNITS_S[match[2]])
    if not timedelta() < length <= LONGEST:
        raise click.BadParameter("expected a duration from 1s to 365d", param=param)
    return length


@dataclass(frozen=True, kw_only=True)
class _Asked:
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
@click.option("--kind", type=click.Choice([str(kind) for kind in KINDS]), help="Alert kind. Default: benchmark.")
@click.option("--subset", help="Only this subset (name or pattern). Default: the benchmark and all subsets.")
@click.option("--for", "length", callback=length_of, help="Duration, such as 30min, 4h or 2d.")
@click.option("--reason", help="Reason, shown by `tracker alerts list`; required with --for.")
@click.option("--end", is_flag=True, help="End the silence now.")
@click.option("--run", "run_id", help="Only this run. Default: all runs of the project.")
@config_option
@json_option(Silence)
@asked_as(_Asked)
def command(asked: _Asked) -> None:
    """Silence alerts of a benchmark and its subsets, or of several benchmarks with a pattern such as math*.

    Use `--kind latency` for latency alerts (under load NAME, or under any load), `--kind checkpoint` for overdue and
    unevaluated checkpoints and `--kind queue` for stuck evaluations. Alerts that are still open when the silence ends
    are sent then. To accept a lower score permanently, use `tracker accept`.
    """
    project = open_project(asked.config_path)
    own, now = project.config.run.name, SystemClock().now()
    run_id = asked.run_id or own
    if not is_of(run_id, own):
        raise ConfigError(f"{run_id} is not a run of this tracker.toml ({own})", hint=f"expected {own}/NAME")
    alerting = project.alerting
    silence = _asked_for(asked, run_id, now)
    if asked.end:
        _check_silenced(silence, alerting.silences())
    else:
        _check_known(project, silence)
    alerting.silence(silence)
    kind, until = EventKind.SILENCED, f"until {silence.ends_at:%Y-%m-%d %H:%M} UTC"
    if asked.end:
        kind, until = EventKind.UNSILENCED, ""
    texts = {"subject": silenced_text(silence), "after": until, "reason": silence.reason}
    project.history.log([run_event(kind, (run_id, None, now), silence.id, now, **texts)])
    alerting.close()  # sends what is due because a silence has ended
    if asked.as_json:
        print_json(silence)
    elif asked.end:
        click.echo(f"no longer silenced: {silenced_text(silence)}")
    else:
        click.echo(f"silenced {until}: {silenced_text(silence)}")


def _check_silenced(silence: Silence, silences: Sequence[Silence]) -> None:
    if silence.id not in [known.id for known in silences]:
        known = ", ".join(map(silenced_text, silences)) or "nothing"
        raise ConfigError(f"{silenced_text(silence)} is not silenced", hint=f"silenced: {known}")


def _check_known(project: Project, silence: Silence) -> None:
    """Refuse the name of no benchmark or load: it would silence nothing and remain unnoticed."""
    what = _WHAT.get(silence.kind)
    if what is None or silence.name == "*":
        return
    known = {name for kind, name in _known_names(project, silence.run_id) if name and kind is silence.kind}
    if silence.name not in known and not filter_names(known, silence.name):
        raise ConfigError(f"no {what} matches {silence.name!r}", hint=known_names_hint(f"{what}s", known, silence.name))


def _known_names(project: Project, run: str) -> Iterator[tuple[SubjectKind, str]]:
    for benchmark in project.config.benchmark:
        yield SubjectKind.BENCHMARK, benchmark.resolved_name()
    for load in project.config.probe.to_loads():
        yield SubjectKind.LATENCY, load.name
    for run_id in project.history.runs():
        if is_of(run_id, run):
            for report in project.history.outlines(run_id):
                yield from ((SubjectKind.BENCHMARK, one.benchmark) for one in report.verdicts)
                yield from ((SubjectKind.LATENCY, one.load) for one in report.latency)


def _asked_for(asked: _Asked, run_id: str, now: datetime) -> Silence:
    reason = (asked.reason or "").strip()
    if asked.end == (asked.length is not None):
        raise ConfigError("expected either --for DURATION or --end", hint="--for starts a silence, --end ends it")
    if not (reason or asked.end):
        raise ConfigError("missing --reason", hint="pass --reason TEXT; `tracker alerts list` shows it")
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
    """Return the kind to silence; a name that is also an alert kind is rejected as ambiguous."""
    if asked.kind is None and asked.name in KINDS:
        raise ConfigError(
            f"{asked.name} is an alert kind and may also be a benchmark name",
            hint=f"use --kind {asked.name}, or --kind benchmark {asked.name}",
        )
    if asked.kind in (None, SubjectKind.BENCHMARK):
        if not asked.name:
            raise ConfigError("missing NAME", hint="pass the NAME of a benchmark, or another --kind")
        return SubjectKind.BENCHMARK
    kind = SubjectKind(asked.kind)
    if asked.name and kind not in _NAMED:
        raise ConfigError(f"{kind} alerts have no name", hint=f"remove {asked.name!r}")
    if asked.subset is not None:
        raise ConfigError("--subset requires --kind benchmark", hint="remove --subset")
    return kind
