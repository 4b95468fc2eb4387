"""The outbox of a tracking store."""
