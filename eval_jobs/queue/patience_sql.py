"""Connections to PostgreSQL that notice a server which is there and says nothing, such as one that is frozen.

The kernel of such a server goes on confirming what it receives, so that no setting of TCP ends the wait, and no limit
that the server itself keeps. So the bound lies here: on silence, not on the length of an answer.
"""

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

T = TypeVar("T")


class PatientConnection(psycopg.Connection[TupleRow]):
    """A connection that is closed when the server sent nothing for `silence_s` after it was asked; None: never."""

    silence_s: float | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:  # noqa: ANN401 - psycopg's, and they differ
        """Wait for the server; see `psycopg.Connection`.

        Raises:
            psycopg.OperationalError: it said nothing for too long; the connection is closed.
        """
        return super().wait(self._bounded(gen), *args, **options)

    # --- private

    def _bounded(self, asked: PQGen[T]) -> PQGen[T]:
        """Pass on what `asked` waits for; psycopg wakes it up several times a second, with 0 while nothing came."""
        heard_s = time.monotonic()
        ready: Any = None
        while True:
            try:
                wanted = asked.send(ready)
            except StopIteration as end:
                answer: T = end.value
                return answer
            ready = yield wanted
            if ready:
                heard_s = time.monotonic()
            elif self.silence_s is not None and time.monotonic() - heard_s > self.silence_s:
                self.close()
                raise psycopg.OperationalError(f"no response for {self.silence_s:g} s")
