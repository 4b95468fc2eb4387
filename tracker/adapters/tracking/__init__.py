"""The outbox before a tracking store."""
