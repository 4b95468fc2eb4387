"""When the requests of an open loop are sent. Pure."""

import random
from itertools import accumulate


def arrivals_s(count: int, rate: float, *, seed: int) -> tuple[float, ...]:
    """Return the times, from the start, at which `count` requests arrive that know nothing of each other.

    Gaps are exponential, as of `vllm bench serve --request-rate`, and as there stretched so that the last request is
    sent when the rate says: with a few dozen of them chance alone would change the rate by a fifth.

    Args:
        count: how many requests.
        rate: per second, on average; above 0.
        seed: the same seed gives the same times.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    times = list(accumulate(chance.expovariate(rate) for _ in range(count)))
    return tuple(time_s * (count / rate) / times[-1] for time_s in times)
