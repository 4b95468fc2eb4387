"""Documents of a table, read one by one: a damaged one is left out and named, and the others are read."""

import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table

from eval_jobs.errors import OtherSchema, StoreError
from tracker.adapters.database.codec import Kind, from_json

log = logging.getLogger(__name__)

Document = TypeVar("Document")


class DamagedRows:
    """Remembers the rows that could not be read."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], str] = {}
        """By table and key."""

    def texts(self) -> tuple[str, ...]:
        """Return what is damaged, and where."""
        return tuple(self._found.values())

    def documents(self, connection: Connection, query: Select[Any], kind: type[Kind], table: Table) -> Iterator[Kind]:
        """Yield the documents in the only column of a query of `table`; see `readable`."""
        return self.readable(connection, query, lambda row: from_json(kind, row[0]), table)

    def readable(
        self, connection: Connection, query: Select[Any], read: Callable[[Row[Any]], Document], table: Table
    ) -> Iterator[Document]:
        """Yield what `read` makes of each row of a query of `table`. A row is logged when it is found damaged.

        Raises:
            OtherSchema: a newer program wrote a row, which concerns everything.
        """
        # These say which row it is.
        columns = [column for column in table.c if column.primary_key or column.name in ("run_id", "step")]
        for row in connection.execute(query.add_columns(*columns)).all():
            place = (table.name, *row[-len(columns) :])
            try:
                document = read(row)
            except OtherSchema:
                raise
            except StoreError as error:
                where = ", ".join(f"{column.name} {value}" for column, value in zip(columns, place[1:], strict=True))
                if place not in self._found:
                    log.warning("%s and is left out: %s, %s; hint: %s", error.message, table.name, where, error.hint)
                self._found[place] = f"{error.message} ({table.name}, {where})"
            else:
                self._found.pop(place, None)
                yield document
