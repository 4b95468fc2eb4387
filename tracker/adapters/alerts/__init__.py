"""Delivery of notifications: outbox, one queue a channel."""
