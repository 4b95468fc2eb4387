"""How long the evaluator waits before it asks again."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Seconds before each further try of one kind; when they are used up there is none."""

    broken_s: tuple[float, ...] = (0.5, 1.5)
    """When the connection or the answer broke."""
    busy_s: tuple[float, ...] = (1.0, 4.0, 16.0)
    """When the server says that it is busy."""
    lost_s: tuple[float, ...] = (5.0, 20.0)
    """Before what got no answer from a server that lives is asked again, all of it."""
