"""How often a gate says REGRESSION without a loss, and what it misses: simulated pairs of checkpoints, truth known.

    python -m benchmarks.gate [--pairs 1000] [--seed N]

Judges `--pairs` pairs in which nothing was lost, a third of them of 13 passages in a run whose jitter is not known yet,
and as many with a loss of 3, 5 or 10 points in one of five benchmarks
(see `benchmarks.gate_pairs`) by the gate that ships. Prints one row for each kind of pair: what the gate said; how
often the benchmark that lost came out as PASS; in how many pairs the loss was visible, which is that the gate reported
a `detectable` loss of at most the true one; and in how many of these that benchmark did not come out as REGRESSION.
The second table is not counted: there the loss is exactly the smallest that matters (PASS may come out in 5 % of
these), or nothing was lost and only larger losses matter, or the jitter of the run is not known. The third one has the
policy of `tracker gate --init` and the default margin: how many equal pairs pass, and how many losses of at least the
margin do.

The last line is `false_regressions=N/P missed_drops=M/P`. A missed drop is a planted loss that was visible and that is
not called REGRESSION; as `detectable` promises 80 % power, at most a fifth of the visible ones may be missed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from rich.console import Console
from rich.progress import track

from benchmarks.gate_pairs import PASSAGES, Kind, simulated_pair
from benchmarks.verdicts.scoring import Rate
from benchmarks.verdicts.table import aligned
from tracker.domain.gate.decision import gate
from tracker.domain.gate.types import GateWord

SEED = 20_000_000
PAIRS = 1000
BESIDES = 200
"""Pairs of each kind of the second table."""

WORLDS = ("pure", "real")
EQUAL = (*(Kind(world=world) for world in WORLDS), Kind(world=PASSAGES, knows_jitter=False))
LOSSES = tuple(
    Kind(world=world, plant=plant, size=size)
    for world in WORLDS
    for plant, size in (("drop3", 500), ("drop3", 1319), ("drop5", 500), ("drop5", 1319), ("drop10", 100))
)
OTHERS = (
    *(Kind(world=world, min_effect=0.05) for world in WORLDS),
    *(Kind(world=world, plant="drop3", size=1319, min_effect=0.03) for world in WORLDS),
    *(Kind(world=world, plant="drop5", size=1319, min_effect=0.05) for world in (*WORLDS, PASSAGES)),
    Kind(world="real", knows_jitter=False),
)
PROPOSED = tuple(Kind(world=world, is_proposed=True) for world in (*WORLDS, PASSAGES))
DEFAULT = (
    *(Kind(world=world, min_effect=None) for world in (*WORLDS, PASSAGES)),
    Kind(world=PASSAGES, min_effect=None, knows_jitter=False),
)
USABLE = (
    *PROPOSED,
    *DEFAULT,
    *(replace(kind, plant="drop10", size=500) for kind in (*PROPOSED, *DEFAULT)),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the gate said of one pair."""

    word: GateWord
    word_of_lost: GateWord | None = None
    """Of the benchmark that lost; None: nothing was lost."""
    loss_matters: bool = False
    """The benchmark lost at least the smallest loss that matters."""
    is_visible: bool = False
    """Its loss is at least what the gate says that it could have seen."""

    @property
    def is_missed(self) -> bool:
        """Return whether the loss was visible and is not called so."""
        return self.is_visible and self.word_of_lost is not GateWord.REGRESSION


Outcomes = Mapping[Kind, Sequence[Outcome]]


def main() -> None:
    """Judge, count and print."""
    args = _arguments()
    jobs = [*islice(cycle(EQUAL), args.pairs), *islice(cycle(LOSSES), args.pairs)]
    jobs += (*OTHERS, *USABLE) * min(BESIDES, args.pairs)
    outcomes: dict[Kind, list[Outcome]] = {}
    for number, kind in enumerate(track(jobs, "pairs", console=Console(stderr=True))):
        outcomes.setdefault(kind, []).append(judged(kind, args.seed + number))
    groups = (EQUAL, LOSSES, OTHERS, USABLE)
    equal, losses, others, usable = ({kind: outcomes.get(kind, []) for kind in kinds} for kinds in groups)
    print(f"{table({**equal, **losses})}\n\nNot counted:\n\n{table(others)}\n\n{rates(equal, losses, others)}")
    print(f"\nPolicies written by --init, and default margins:\n\n{table(usable)}\n\n{usable_rates(usable)}")
    print(summary(equal, losses))


def judged(kind: Kind, seed: int) -> Outcome:
    """Simulate one pair and ask the gate."""
    case = simulated_pair(kind, seed)
    report = gate(case.baseline, case.candidate, case.policy, case.noise)
    check = next((check for check in report.benchmarks if check.benchmark == kind.lost), None)
    if check is None:
        return Outcome(word=report.word)
    is_visible = check.detectable is not None and check.detectable <= kind.loss
    matters = check.min_effect is not None and check.min_effect <= kind.loss
    return Outcome(word=report.word, word_of_lost=check.word, loss_matters=matters, is_visible=is_visible)


def table(outcomes: Outcomes) -> str:
    """Return one Markdown row for each kind."""
    words = (GateWord.PASS, GateWord.REGRESSION, GateWord.INCONCLUSIVE)
    rows = [("lost; noise; what matters", "pairs", *map(str.upper, words), "its own PASS", "visible", "missed")]
    for kind, found in outcomes.items():
        said = Counter(outcome.word for outcome in found)
        own = (_passed(found), sum(o.is_visible for o in found), sum(o.is_missed for o in found))
        numbers = (len(found), *(said[word] for word in words))
        rows.append((str(kind), *map(str, numbers), *(map(str, own) if kind.lost else ("",) * 3)))
    return aligned(rows)


def rates(equal: Outcomes, losses: Outcomes, others: Outcomes) -> str:
    """Return the shares that a gate stands for, with their 95 % intervals."""
    healthy, hurt = _all(equal), _all(losses)
    visible = [outcome for outcome in hurt if outcome.is_visible]
    least = [outcome for kind, found in others.items() if kind.loss == kind.min_effect for outcome in found]
    return "\n".join(
        (
            f"REGRESSION where nothing was lost: {_share(o.word is GateWord.REGRESSION for o in healthy)}",
            f"PASS of the gate where a loss matters: {_share(o.word is GateWord.PASS for o in hurt)}",
            f"PASS of the benchmark that lost: {_share(o.word_of_lost is GateWord.PASS for o in hurt)}",
            f"the same where it lost exactly what matters: {_share(o.word_of_lost is GateWord.PASS for o in least)}",
            f"visible losses that are not called: {_share(o.is_missed for o in visible)}",
        )
    )


def usable_rates(usable: Outcomes) -> str:
    """Return how many equal pairs pass, and how many losses do, with the proposed and the default policies."""
    lines = []
    for name, are_proposed in (("proposed policy", True), ("default margin", False)):
        found = {kind: seen for kind, seen in usable.items() if kind.is_proposed is are_proposed}
        healthy = _all({kind: seen for kind, seen in found.items() if not kind.plant})
        hurt = [outcome for outcome in _all(found) if outcome.loss_matters]
        lines += [
            f"{name}: PASS where nothing was lost: {_share(o.word is GateWord.PASS for o in healthy)}",
            f"{name}: REGRESSION where nothing was lost: {_share(o.word is GateWord.REGRESSION for o in healthy)}",
            f"{name}: PASS of a loss of the margin or more: {_share(o.word_of_lost is GateWord.PASS for o in hurt)}",
        ]
    return "\n".join(lines)


def summary(equal: Outcomes, losses: Outcomes) -> str:
    """Return the last line."""
    healthy, hurt = _all(equal), _all(losses)
    false = sum(outcome.word is GateWord.REGRESSION for outcome in healthy)
    missed = sum(outcome.is_missed for outcome in hurt)
    return f"false_regressions={false}/{len(healthy)} missed_drops={missed}/{len(hurt)}"


# --- private


def _passed(found: Iterable[Outcome]) -> int:
    return sum(outcome.word_of_lost is GateWord.PASS for outcome in found)


def _all(outcomes: Outcomes) -> list[Outcome]:
    return [outcome for found in outcomes.values() for outcome in found]


def _share(hits: Iterable[bool]) -> str:
    each = list(hits)
    if not each:
        return "none"
    rate = Rate(count=sum(each), total=len(each))
    low, high = rate.interval()
    return f"{rate.count} of {rate.total}, {100 * rate.share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs without a loss, and as many with one")
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()
    if args.pairs < len(LOSSES):
        parser.error(f"--pairs is at least {len(LOSSES)}, one of each kind")
    return args


if __name__ == "__main__":
    main()
