"""Send times of the requests of an open loop. Pure."""

import random
from itertools import accumulate


def arrivals_s(count: int, rate: float, *, seed: int) -> tuple[float, ...]:
    """Return the times, in seconds from the start, at which `count` independent requests arrive.

    Gaps are exponential, as in `vllm bench serve --request-rate`, and as there scaled so that the last request is sent
    at `count / rate`: with a few dozen requests, chance alone would change the rate by a fifth.

    Args:
        count: number of requests.
        rate: requests per second on average; above 0.
        seed: the same seed gives the same times.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    times = list(accumulate(chance.expovariate(rate) for _ in range(count)))
    return tuple(time_s * (count / rate) / times[-1] for time_s in times)
