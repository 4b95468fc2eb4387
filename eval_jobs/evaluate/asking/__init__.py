"""Requests to the model, the same for every harness: one client, one retry policy, one handling of failures."""
