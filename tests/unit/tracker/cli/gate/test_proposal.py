"""A proposed policy as TOML and as a table: what is written is what the gate reads."""

from pathlib import Path

import pytest
from rich.console import Console

from tracker.cli.gate.proposal import proposal_table, proposal_toml
from tracker.config import load_gate_policy
from tracker.domain.gate.proposal import LimitedBy, ProposedPolicy, ProposedRule
from tracker.domain.gate.rules import Clusters
from tracker.domain.gate.types import Contexts
from tracker.domain.records.display import NOTHING

PROPOSED = ProposedPolicy(
    run_id="sft",
    steps=(100, 200, 300),
    alpha=0.05,
    rules=(
        ProposedRule(
            benchmark="gsm8k", min_effect=0.029, samples=1319, flips=0.114, jitter=0.003, limit=LimitedBy.JITTER
        ),
        ProposedRule(
            benchmark="drop.v2",
            min_effect=0.04,
            samples=5000,
            flips=0.08,
            contexts=Contexts(kind="passage", count=122, samples=4900),
        ),
        ProposedRule(
            benchmark="mmlu",
            min_effect=0.051,
            samples=14042,
            flips=0.05,
            clusters=Clusters.SUBSET,
            limit=LimitedBy.CLUSTERS,
            contexts=Contexts(kind="subset", count=57, samples=14042),
        ),
        ProposedRule(benchmark="tiny", samples=4, flips=0.0),
        ProposedRule(benchmark="new"),
    ),
)
TOML = """\
# Written by `tracker gate --init`.
# A candidate that lost nothing passes in 80 % of cases, going by steps 100 to 300 of sft.
[gate]
min_loss = 0.01  # a significant loss of this size is a regression, also below min_effect

[gate.benchmark.gsm8k]
min_effect = 0.029  # 1,319 samples, 11.4 % flip, jitter 0.003

[gate.benchmark."drop.v2"]
min_effect = 0.04  # 5,000 samples in 122 passages, 8.0 % flip

[gate.benchmark.mmlu]
min_effect = 0.051  # 14,042 samples in 57 subsets, 5.0 % flip
clusters = "subset"  # changes within a subset go together

[gate.benchmark.tiny]
required = false  # 4 samples are too few: no margin up to 0.5 is reliable
"""


def test_every_number_stands_beside_its_reason() -> None:
    assert proposal_toml(PROPOSED) == TOML


def test_what_is_written_is_what_the_gate_reads(tmp_path: Path) -> None:
    path = tmp_path / "gate.toml"
    path.write_text(proposal_toml(PROPOSED), encoding="utf-8")
    read, meant = load_gate_policy(path), PROPOSED.to_policy()
    for rule in PROPOSED.rules:
        assert read.rule_of(rule.benchmark) == meant.rule_of(rule.benchmark)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_shows_margins_and_what_they_follow_from(width: int) -> None:
    console = Console(width=width)
    with console.capture() as page:
        console.print(proposal_table(PROPOSED))
    text = " ".join(page.get().split())
    for words in (
        "gsm8k 1,319 11.4 % 0.003 0.029 jitter: more samples do not help",
        f"drop.v2 5,000 8.0 % {NOTHING} 0.040 samples, in 122 passages",
        f"mmlu 14,042 5.0 % {NOTHING} 0.051 57 subsets",
    ):
        assert words in text
    assert all(len(line) <= width for line in page.get().splitlines())
