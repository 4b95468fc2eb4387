"""The state of each benchmark at its newest checkpoint, and the finding of a run in one sentence. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracker.domain.overview.run import URGENCY, Overview
from tracker.domain.records.alerts import subject_text
from tracker.domain.records.display import count_text, names_text, steps_text
from tracker.domain.records.losses import Measure
from tracker.domain.records.reasons import NothingEarlier
from tracker.domain.records.types import IS_BACK, WORSE, Baseline, Comparison, Gap, Verdict, VerdictWord

MAX_CHARS = 120
"""Of the finding in one sentence: two lines of a page."""
_DECISIVE = WORSE | IS_BACK | {VerdictWord.IMPROVED}
_IN_A_STREAK = frozenset({*WORSE, VerdictWord.SUSPECT, VerdictWord.MISSING, VerdictWord.INCOMPARABLE})
_UNKNOWN = frozenset({VerdictWord.MISSING, VerdictWord.INCOMPARABLE})
_OPEN = frozenset(
    {
        VerdictWord.EQUIVALENT,
        VerdictWord.RISING,
        VerdictWord.INCONCLUSIVE,
        VerdictWord.NOT_LEARNED,
        VerdictWord.FIRST,
    }
)
_CHANGES: Mapping[Measure, tuple[str, str]] = {
    Measure.OUTPUT_LENGTH: ("answers to", "have become longer"),
    Measure.COMPLETENESS: ("more answers to", "have been truncated"),
}
"""Text before and after the names."""
_PHRASES: Mapping[VerdictWord, str] = {
    VerdictWord.MISSING: "{have} no result at step {step}",
    VerdictWord.INCOMPARABLE: "cannot be compared at step {step}",
    VerdictWord.FORGOTTEN: "{be} forgotten",
    VerdictWord.REGRESSED: "regressed",
    VerdictWord.BELOW_GUESSING: "fell below guessing",
    VerdictWord.SUSPECT: "may be worse at step {step}",
    VerdictWord.RECOVERED: "recovered",
    VerdictWord.TRANSIENT: "{be} lower at one checkpoint",
    VerdictWord.IMPROVED: "improved",
    VerdictWord.RISING: "may be better at step {step}",
    VerdictWord.FIRST: "{be} measured for the first time",
}


@dataclass(frozen=True, kw_only=True)
class Standing:
    """State of one benchmark at its newest checkpoint."""

    benchmark: str
    step: int
    word: VerdictWord
    """Word of the newest verdict; `improved` also if it improved earlier and nothing was found since."""
    after_step: int | None
    """If worse, the last step before the loss."""
    best_steps: tuple[int, ...]
    """If a loss is open or the verdict is worse, the run's own checkpoints before it (`compared_steps`), ascending."""
    earlier: tuple[int, VerdictWord] | None
    """The last decisive verdict before, if the newest one is not decisive, and a loss that it showed is not over."""
    is_accepted: bool = False
    """Whether it is the first result since a level was accepted."""


def standings(view: Overview) -> tuple[Standing, ...]:
    """Return the state of each benchmark: losses first, then missing results, suspects, gains and the rest."""
    found = [_standing(name, view.of(name)) for name in view.benchmarks]
    return tuple(sorted(found, key=lambda s: URGENCY.index(s.word)))


def headline(view: Overview) -> str:
    """Return the finding of the run in one sentence: `facts and sums were forgotten after step 600; ages improved`."""
    if not view.steps:
        return "nothing evaluated yet"
    by_phrase = _by_phrase(standings(view))
    rest = by_phrase.pop("", [])
    worse = [_clause(phrase, group) for phrase, group in by_phrase.items() if group[0].word in WORSE]
    parts = [_clause(phrase, group) for phrase, group in by_phrase.items() if group[0].word not in WORSE]
    found = _finding_clauses([f for f in view.newest_findings() if f.word in WORSE])
    gap = _newest_gap(view)
    missed = [] if gap is None else [f"step {gap.steps[-1]} was not evaluated"]
    if rest:
        parts.append(_nothing_found(rest, alone=not by_phrase, qualifier=" overall" if found else ""))
    return _shortened([*worse, *found, *missed, *parts])


def blind_spots(view: Overview) -> tuple[str, ...]:
    """Return what is unknown at the newest step, one clause each; empty if every benchmark has a usable result."""
    newest = view.steps[-1] if view.steps else -1
    unknown = [one for one in standings(view) if one.step == newest and one.word in _UNKNOWN]
    found = [_clause(phrase, group) for phrase, group in _by_phrase(unknown).items()]
    if gap := _newest_gap(view):
        found.append(f"step {gap.steps[-1]} was not evaluated: {gap.message}")
    return tuple(found)


def _newest_gap(view: Overview) -> Gap | None:
    newest = max(reversed(view.gaps), key=lambda gap: gap.steps[-1], default=None)
    if newest is not None and newest.steps[-1] > max(view.steps, default=-1):
        return newest
    return None


def compared_steps(verdict: Verdict) -> tuple[int, ...]:
    """Return the run's own checkpoints that a verdict is shown against: before an open loss, else of the deciding test.

    A pinned checkpoint may belong to another run, whose steps mean something else: () for it.
    """
    if drop := verdict.open_drop:
        return () if drop.is_pinned else drop.baseline_steps
    comparison = decisive_comparison(verdict)
    if comparison is None or comparison.baseline is Baseline.PINNED:
        return ()
    return comparison.baseline_steps


def decisive_comparison(verdict: Verdict) -> Comparison | None:
    """Return the comparison that a verdict is based on, None without one."""
    return next(iter(verdict.comparisons), None)


def _standing(benchmark: str, verdicts: Sequence[tuple[int, Verdict]]) -> Standing:
    step, newest = verdicts[-1]
    earlier, is_lost = _earlier(verdicts), newest.word in WORSE
    is_improved = earlier is not None and earlier[1] is VerdictWord.IMPROVED and newest.word in _OPEN
    best_steps = compared_steps(newest) if is_lost or newest.open_drop else ()
    return Standing(
        benchmark=benchmark,
        step=step,
        word=VerdictWord.IMPROVED if is_improved else newest.word,
        after_step=_last_good(verdicts, best_steps) if is_lost else None,
        best_steps=best_steps,
        earlier=earlier,
        is_accepted=isinstance(newest.reason, NothingEarlier) and newest.reason.accepted_step is not None,
    )


def _earlier(verdicts: Sequence[tuple[int, Verdict]]) -> tuple[int, VerdictWord] | None:
    """Return step and word of the last decisive verdict before the newest one, if that one is not decisive.

    A loss of which a measured checkpoint shows nothing is over, by an acceptance or a correction: None.
    """
    newest = verdicts[-1][1]
    earlier = next(((s, v.word) for s, v in reversed(verdicts[:-1]) if v.word in _DECISIVE), None)
    if earlier is None or newest.word in _DECISIVE:
        return None
    is_measured = newest.word in _OPEN and newest.word is not VerdictWord.FIRST
    if is_measured and earlier[1] in WORSE and newest.lost_since is None:
        return None
    return earlier


def _last_good(verdicts: Sequence[tuple[int, Verdict]], best_steps: Sequence[int]) -> int | None:
    """Return the step before the onset, else before the streak; suspect and missing verdicts do not end a streak."""
    onset = verdicts[-1][1].lost_since
    if onset is not None:
        good = (step for step, _ in reversed(verdicts) if step < onset)
    else:
        good = (step for step, verdict in reversed(verdicts) if verdict.word not in _IN_A_STREAK)
    return next(good, best_steps[-1] if best_steps else None)


def _by_phrase(found: Iterable[Standing]) -> dict[str, list[Standing]]:
    by_phrase: dict[str, list[Standing]] = {}
    for standing in found:
        by_phrase.setdefault(_phrase(standing), []).append(standing)
    return by_phrase


def _phrase(standing: Standing) -> str:
    """Return the phrase for a benchmark, with {be} and {have} as placeholders; empty if nothing was found."""
    then = ""
    if standing.earlier is not None and standing.earlier[1] in WORSE:
        then = f" ({standing.earlier[1]} at step {standing.earlier[0]})"
    if standing.word is VerdictWord.IMPROVED and standing.earlier is not None:
        return "improved earlier"
    # Earlier checkpoints do not count since a level was accepted.
    if standing.word is VerdictWord.FIRST and (then or standing.is_accepted):
        return f"{{have}} a new baseline from step {standing.step}{then}"
    phrase = _PHRASES.get(standing.word, f"{{be}} {standing.word} at step {{step}}" if then else "")
    return phrase.replace("{step}", str(standing.step)) + then


def _shortened(clauses: Sequence[str]) -> str:
    """Return the first clauses in one sentence of about `MAX_CHARS`, and the number of the others."""
    shown = len(clauses)
    while shown > 1 and len("; ".join(clauses[:shown])) > MAX_CHARS:
        shown -= 1
    more = [f"and {count_text(len(clauses) - shown, 'other finding')}"] if shown < len(clauses) else []
    return "; ".join([*clauses[:shown], *more])


def _clause(phrase: str, group: Sequence[Standing]) -> str:
    plural = len(group) > 1
    predicate = phrase.replace("{be}", "were" if plural else "was").replace("{have}", "have" if plural else "has")
    return f"{_names([s.benchmark for s in group])} {predicate}{_steps_text('after', [s.after_step for s in group])}"


def _names(names: list[str]) -> str:
    known = names_text(names)
    return known if len(known) <= MAX_CHARS // 2 else names_text(names, at_most=2)


def _steps_text(preposition: str, known: Iterable[int | None]) -> str:
    """Return ` after step 600`, ` after steps 600 to 700`, or an empty string if no step is known."""
    steps = sorted({step for step in known if step is not None})
    if not steps:
        return ""
    return f" {preposition} {steps_text(steps)}"


def _finding_clauses(found: Sequence[Verdict]) -> list[str]:
    kinds: dict[tuple[VerdictWord, Measure], list[Verdict]] = {}
    for one in found:
        kinds.setdefault((one.word, one.measure), []).append(one)
    return [_finding_clause(word, measure, group) for (word, measure), group in kinds.items()]


def _finding_clause(word: VerdictWord, measure: Measure, group: Sequence[Verdict]) -> str:
    names = _names([subject_text(one.benchmark, one.subset, Measure.SCORE) for one in group])
    since = _steps_text("since", [one.lost_since for one in group])
    if measure is not Measure.SCORE:
        before, after = _CHANGES[measure]
        return f"{before} {names} {after}{since}"
    return f"{names} {_PHRASES[word].replace('{be}', 'were' if len(group) > 1 else 'was')}{since}"


def _nothing_found(group: Sequence[Standing], *, alone: bool, qualifier: str) -> str:
    """Return how many benchmarks show nothing, with the words of their verdicts: no finding is not "no change"."""
    counts = Counter(standing.word for standing in group)
    words = ", ".join(f"{n} {word}" for word, n in counts.items())
    if len(counts) == 1:
        words = f"all {group[0].word}"
    if len(group) == 1:
        return f"no significant change in {names_text([group[0].benchmark])}{qualifier} ({group[0].word})"
    subject = count_text(len(group), "benchmark" if alone else "other benchmark")
    return f"no significant change in {subject}{qualifier} ({words})"
