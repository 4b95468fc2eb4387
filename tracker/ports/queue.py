"""What the tracker needs of the queue; `eval_jobs.ports` has the rules."""

from typing import Protocol

from eval_jobs.ports import HoldRegistry, PlanQueue, QueueStatus, ResultQueue


class RequestQueue(PlanQueue, ResultQueue, QueueStatus, Protocol):
    """For those who ask for an evaluation: put it in, see how far it is, take over what came out."""


class WatchedQueue(RequestQueue, HoldRegistry, Protocol):
    """For a watcher, which also looks at who works on what."""
