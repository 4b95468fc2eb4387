"""What the tracker needs of the queue. `eval_jobs.ports` defines the rules."""

from typing import Protocol

from eval_jobs.ports import HoldRegistry, PlanQueue, QueueStatus, ResultQueue


class RequestQueue(PlanQueue, ResultQueue, QueueStatus, Protocol):
    """For callers that request evaluations: add plans, read their progress, collect results."""


class WatchedQueue(RequestQueue, HoldRegistry, Protocol):
    """For a watcher, which also reads which worker holds which plan."""
