"""A proposed gate policy -> TOML, and a table that explains it. Pure."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from tracker.cli.tables.render import number_columns, plain_table
from tracker.config.section import toml_key
from tracker.domain.gate.contexts import contexts_text
from tracker.domain.gate.margins import LARGEST
from tracker.domain.gate.proposal import LimitedBy, ProposedPolicy, ProposedRule
from tracker.domain.gate.rules import COUNTS, POWER, Clusters
from tracker.domain.gate.text import name_text
from tracker.domain.records.display import NOTHING, one_line, score_text, steps_text

_TOO_FEW = f"no margin up to {LARGEST:g} is reliable"


def proposal_toml(proposed: ProposedPolicy) -> str:
    """Return the [gate] tables; every number has the reason for it beside it."""
    return "\n".join(_toml_lines(proposed)) + "\n"


def proposal_table(proposed: ProposedPolicy) -> RenderableType:
    """Return the margins with what they follow from."""
    table = plain_table(
        Column("benchmark", overflow="fold"), *number_columns("samples", "flips", "jitter", "min_effect"), "limited by"
    )
    for rule in proposed.rules:
        jitter = NOTHING if rule.jitter is None else score_text(rule.jitter)
        margin = Text(NOTHING if rule.min_effect is None else score_text(rule.min_effect), style="bold")
        samples = f"{rule.samples:,}" if rule.samples else NOTHING
        flips = _flips(rule) if rule.samples else NOTHING
        table.add_row(name_text(rule.benchmark), samples, flips, jitter, margin, _limit_text(rule))
    return Group(table, Text(_promise(proposed), style="dim"))


def _promise(proposed: ProposedPolicy) -> str:
    source = f"{steps_text(proposed.steps)} of {one_line(proposed.run_id)}"
    return f"A candidate that lost nothing passes in {100 * POWER:g} % of cases, going by {source}."


def _toml_lines(proposed: ProposedPolicy) -> Iterator[str]:
    yield "# Written by `tracker gate --init`."
    yield f"# {_promise(proposed)}"
    yield "[gate]"
    yield f"min_loss = {COUNTS:g}  # a significant loss of this size is a regression, also below min_effect"
    for rule in proposed.rules:
        if not rule.samples:  # it has the default margin as soon as it is evaluated
            continue
        yield f"\n[gate.benchmark.{toml_key(rule.benchmark)}]"
        if rule.min_effect is None:
            yield f"required = false  # {rule.samples:,} samples are too few: {_TOO_FEW}"
            continue
        jitter = "" if rule.jitter is None else f", jitter {score_text(rule.jitter)}"
        contexts = "" if rule.contexts is None else f" in {contexts_text(rule.contexts)}"
        yield f"min_effect = {rule.min_effect:g}  # {rule.samples:,} samples{contexts}, {_flips(rule)} flip{jitter}"
        if rule.clusters is not Clusters.FOUND:
            yield f'clusters = "{rule.clusters}"  # changes within a {rule.clusters} go together'


def _flips(rule: ProposedRule) -> str:
    return f"{100 * rule.flips:.1f} %"


def _limit_text(rule: ProposedRule) -> str:
    if not rule.samples:
        return "not evaluated on two checkpoints: default margin"
    if rule.min_effect is None:
        return f"advisory, too few samples: {_TOO_FEW}"
    if rule.limit is LimitedBy.JITTER:
        return "jitter: more samples do not help"
    if rule.contexts is None:
        return "samples"
    named = contexts_text(rule.contexts)
    return named if rule.limit is LimitedBy.CLUSTERS else f"samples, in {named}"
