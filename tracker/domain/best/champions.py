"""Checkpoints for the aliases of a model registry: the best of each benchmark, and of all of them. Pure."""

import re
from collections.abc import Iterable

from tracker.domain.best.choice import Best, best_by_benchmark, best_of
from tracker.domain.records.display import steps_text
from tracker.domain.records.metric_keys import MAX_KEY_CHARS, unique_keys
from tracker.domain.records.tracking import Champion
from tracker.domain.records.types import Policy
from tracker.domain.scores.run_scores import RunScores

CHAMPION = "champion"
"""Alias of the best over the whole suite."""

_NOT_IN_ALIASES = re.compile(r"[^\w-]+")


def champions_of(scores: RunScores, *, min_coverage: float = Policy.min_coverage) -> tuple[Champion, ...]:
    """Return the champions of one branch of a run (`rewind.scores_of_newest`), the overall one first.

    The best block decides, never a lucky maximum (`choice.best_of`).
    """
    overall = best_of(scores, min_coverage=min_coverage)
    first = () if overall is None else (_champion(CHAMPION, overall),)
    single = best_by_benchmark(scores, min_coverage=min_coverage)
    aliases = aliases_of(scores.benchmarks())
    return (*first, *(_champion(aliases[name], best) for name, best in single.items()))


def aliases_of(benchmarks: Iterable[str]) -> dict[str, str]:
    """Return `best-<benchmark>` for each; a suffix derived from the name makes equal aliases distinct."""
    return {name: f"best-{part}" for name, part in unique_keys(benchmarks, _alias_part).items()}


# --- private


def _alias_part(benchmark: str) -> str:
    return _NOT_IN_ALIASES.sub("-", benchmark)[:MAX_KEY_CHARS]


def _champion(alias: str, best: Best) -> Champion:
    what = best.benchmarks[0] if len(best.benchmarks) == 1 else f"{len(best.benchmarks)} benchmarks"
    reason = f"{what}: best block {steps_text(best.block)}, mean {best.mean:.3f}"
    return Champion(alias=alias, checkpoint=best.checkpoint, plan_id=best.plan.id, reason=reason)
