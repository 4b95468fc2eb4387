"""The smallest loss that a gate can exclude where nothing was lost, given size, clusters and noise. Pure.

A margin below it makes nearly every equal candidate inconclusive. So it is the default, and what a proposed policy has.
"""

import math
from collections.abc import Iterable
from statistics import median

from tracker.domain.gate.rules import POWER, SMALLEST
from tracker.domain.scores.statistics.paired import Spread, t_quantile

LARGEST = 0.5
"""A gate that allows a larger loss would decide nothing."""


def power_of_each(required: int) -> float:
    """Return the power of each of `required` tests, such that independent ones all succeed in `POWER` of cases."""
    return float(POWER ** (1 / max(required, 1)))


def margin_of(spread: Spread, alpha: float, power: float) -> float:
    """Return the smallest loss, in thousandths, whose absence is shown at `alpha` with `power` if nothing was lost.

    t_(1 - alpha) * the standard error of `statistics.loss_p` + t_power * the standard error.
    """
    width = t_quantile(1 - alpha, spread.df) * max(spread.stderr, spread.cautious)
    return max(_rounded_up(width + t_quantile(power, spread.df) * spread.stderr), SMALLEST)


def default_margin(spread: Spread, alpha: float, required: int) -> float:
    """Return the margin of a benchmark whose policy has none: `margin_of`, at most `LARGEST`."""
    return min(margin_of(spread, alpha, power_of_each(required)), LARGEST)


def passing_margin(spread: Spread, alpha: float) -> float | None:
    """Return the smallest loss, in thousandths, whose absence `spread` shows at `alpha`: see `statistics.loss_p`.

    None: not even that of the whole score.
    """
    margin = t_quantile(1 - alpha, spread.df) * max(spread.stderr, spread.cautious) - spread.centre
    rounded = math.floor(1000 * margin + 1) / 1000
    return rounded if rounded < 1 else None


def typical_spread(spreads: Iterable[Spread]) -> Spread:
    """Return the spread of an equal candidate from those of several pairs: the median of each error.

    A pair in which the run did lose or gain has more flips than noise alone, and counts no more than another one.
    """
    known = tuple(spreads)
    return Spread(
        centre=0.0,
        stderr=median(one.stderr for one in known),
        df=median(one.df for one in known),
        cautious=median(one.cautious for one in known),
    )


def _rounded_up(margin: float) -> float:
    return math.ceil(1000 * margin - 1e-9) / 1000
