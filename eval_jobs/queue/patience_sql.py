"""Connections to PostgreSQL that detect a server which is reachable but does not respond, such as a frozen one.

The kernel of such a server still acknowledges packets, so neither TCP settings nor limits of the server itself end the
wait. This module therefore limits the time without data, not the duration of a response.
"""

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

T = TypeVar("T")


class PatientConnection(psycopg.Connection[TupleRow]):
    """A connection that is closed when the server sends nothing for `silence_s` after a request. None: no limit."""

    silence_s: float | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:  # noqa: ANN401 - psycopg's, and they differ
        """Wait for the server; see `psycopg.Connection`.

        Raises:
            psycopg.OperationalError: it sent nothing for too long; the connection is closed.
        """
        return super().wait(self._bounded(gen), *args, **options)

    def _bounded(self, asked: PQGen[T]) -> PQGen[T]:
        """Run `asked` with the limit; psycopg resumes it several times a second, with 0 while no data has arrived."""
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
