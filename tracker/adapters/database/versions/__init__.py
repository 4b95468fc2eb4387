"""Versions of the tables of history and outbox, one script each; `tracker.adapters.database.tables` refers to them."""
