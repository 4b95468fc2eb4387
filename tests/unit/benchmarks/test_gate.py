"""The gate's benchmark, small: its pairs are what they say, and the gate that ships keeps its promises on them."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.gate import EQUAL, LOSSES, Outcome, judged, rates, summary, table
from benchmarks.gate_pairs import NAMES, SIZES, Kind, simulated_pair
from eval_jobs.types import EvalResult
from tests.deep import sized
from tracker.domain.gate.types import GateWord

SEED = 100


def flips(kind: Kind, seed: int) -> dict[str, tuple[float, float]]:
    """Share of the samples that flip and change of the score, by benchmark."""
    case = simulated_pair(kind, seed)
    found = {}
    for before, after in zip(case.baseline.outcomes, case.candidate.outcomes, strict=True):
        assert isinstance(before, EvalResult)
        assert isinstance(after, EvalResult)
        pairs = zip(before.samples, after.samples, strict=True)
        change = np.array([(now.score or 0.0) - (then.score or 0.0) for then, now in pairs])
        found[after.benchmark] = (float(np.abs(change).mean()), float(change.mean()))
    return found


def test_samples_flip_and_one_benchmark_loses_what_was_planted() -> None:
    kind = Kind(world="pure", plant="drop5", size=1319)
    assert kind.lost == "1319-samples-3"
    pairs = sized(5, 30)
    found = [flips(kind, SEED + number) for number in range(pairs)]
    for name, size in zip(NAMES, SIZES, strict=True):
        flipped, change = np.mean([pair[name] for pair in found], axis=0)
        assert 0.05 < flipped < 0.15
        assert change == pytest.approx(-0.05 if name == kind.lost else 0.0, abs=4 * (0.1 / size / pairs) ** 0.5)


def test_a_run_with_jitter_is_told_so_and_its_samples_are_in_clusters() -> None:
    case = simulated_pair(Kind(world="real"), SEED)
    assert len(case.noise.jitters) == len(SIZES)
    assert all(0 < jitter.tau2 < 0.02**2 for jitter in case.noise.jitters.values())
    largest = case.candidate.outcomes[-1]
    assert isinstance(largest, EvalResult)
    assert len({sample.cluster_id for sample in largest.samples}) == 20
    assert not simulated_pair(Kind(world="pure"), SEED).noise.jitters
    assert not simulated_pair(Kind(world="real", knows_jitter=False), SEED).noise.jitters


@pytest.mark.slow
def test_few_pairs_already_hold_the_gate_to_its_word() -> None:
    """As the whole benchmark does, within what so few pairs can show."""
    equal = {kind: [judged(kind, SEED + number) for number in range(sized(3, 15))] for kind in EQUAL}
    losses = {kind: [judged(kind, SEED + number) for number in range(sized(1, 4))] for kind in LOSSES}
    healthy = [outcome for found in equal.values() for outcome in found]
    false = sum(outcome.word is GateWord.REGRESSION for outcome in healthy)
    assert false <= stats.binom.ppf(0.999, len(healthy), 0.05)
    hurt = [outcome for found in losses.values() for outcome in found]
    visible = [outcome for outcome in hurt if outcome.is_visible]
    assert len(visible) > len(hurt) / 4
    assert sum(outcome.is_missed for outcome in visible) <= stats.binom.ppf(0.999, len(visible), 0.2)
    assert not any(outcome.word_of_lost is GateWord.PASS for outcome in hurt)
    last = f"false_regressions={false}/{len(healthy)} missed_drops={sum(o.is_missed for o in hurt)}/{len(hurt)}"
    assert summary(equal, losses) == last


def test_a_loss_of_exactly_what_matters_seldom_passes() -> None:
    """The other promise of the gate at its limit: `alpha` is the chance of PASS there."""
    kind = Kind(world="pure", plant="drop3", size=1319, min_effect=0.03)
    found = [judged(kind, SEED + number) for number in range(sized(4, 20))]
    assert sum(outcome.word_of_lost is GateWord.PASS for outcome in found) <= stats.binom.ppf(0.999, len(found), 0.05)


def test_the_table_counts_what_was_said() -> None:
    kind = LOSSES[0]
    found = [
        Outcome(word=GateWord.REGRESSION, word_of_lost=GateWord.REGRESSION, is_visible=True),
        Outcome(word=GateWord.REGRESSION, word_of_lost=GateWord.INCONCLUSIVE, is_visible=True),
        Outcome(word=GateWord.INCONCLUSIVE, word_of_lost=GateWord.PASS, is_visible=True),
        Outcome(word=GateWord.INCONCLUSIVE, word_of_lost=GateWord.INCONCLUSIVE),
    ]
    healthy = {EQUAL[0]: [Outcome(word=GateWord.PASS), Outcome(word=GateWord.REGRESSION)]}
    head, _, equal, row = (line.split("|")[1:-1] for line in table({**healthy, kind: found}).splitlines())
    assert [cell.strip() for cell in head[1:]] == [
        "pairs", "PASS", "REGRESSION", "INCONCLUSIVE", "its own PASS", "visible", "missed",
    ]  # fmt: skip
    assert [cell.strip() for cell in equal[1:]] == ["2", "1", "1", "0", "", "", ""]
    assert [cell.strip() for cell in row] == [str(kind), "4", "0", "2", "2", "1", "3", "2"]
    assert summary(healthy, {kind: found}) == "false_regressions=1/2 missed_drops=2/4"
    exactly = Kind(world="pure", plant="drop3", size=500, min_effect=0.03)
    lines = rates(healthy, {kind: found}, {exactly: found[2:], EQUAL[0]: healthy[EQUAL[0]]}).splitlines()
    assert lines[-2] == "the same where it lost exactly what matters: 1 of 2, 50.0 % (1.3 to 98.7)"
    assert lines[-1] == "visible losses that are not called: 2 of 3, 66.7 % (9.4 to 99.2)"
