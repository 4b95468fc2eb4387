"""Use cases of commands, one per module."""
