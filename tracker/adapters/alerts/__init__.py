"""Delivery of alerts: an outbox with one queue per channel."""
